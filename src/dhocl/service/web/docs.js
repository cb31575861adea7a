"use strict";
// Requests, parameters, bodies and responses, drawn from /openapi.json.

let schemas = {};

const resolved = schema => schema.$ref ? schemas[schema.$ref.split("/").pop()] : schema;
const isNull = schema => schema.type === "null";

/** Text with `code` between backticks. */
const prose = text => text.split("`").map((part, place) => place % 2 ? make("code", {}, part) : part);

/** The possible forms of a value; null is one of them only in `kind`. */
function forms(schema) {
  const all = schema.oneOf ?? schema.anyOf;
  return all ? all.filter(form => !isNull(form)) : [schema];
}

function limits(schema) {
  const parts = [];
  if ("minimum" in schema) parts.push(`from ${schema.minimum}`);
  if ("maximum" in schema) parts.push(`to ${schema.maximum}`);
  if (schema.minLength > 1) parts.push(`at least ${schema.minLength} characters`);
  if ("maxLength" in schema) parts.push(`at most ${schema.maxLength} characters`);
  if (schema.format ?? schema.contentEncoding) parts.push(schema.format ?? schema.contentEncoding);
  if (schema.default !== undefined && schema.default !== null) parts.push(`default ${schema.default}`);
  return parts.length ? ` (${parts.join(", ")})` : "";
}

/** The type of a value in a few words. */
function kind(given) {
  const schema = resolved(given);
  const all = forms(schema);
  const orNull = (schema.oneOf ?? schema.anyOf ?? []).some(isNull) ? " or null" : "";
  if (all.length > 1) return `one of ${all.length} forms${orNull}`;
  if (all[0] !== schema) return kind(all[0]) + orNull;
  if (schema.const ?? schema.enum) return (schema.enum ?? [schema.const]).map(value => `"${value}"`).join(" or ");
  if (schema.pattern) return `${schema.type} ${schema.pattern}`;
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  if (schema.type === "object" && schema.additionalProperties?.type !== undefined) return `object of ${kind(schema.additionalProperties)}`;
  return `${schema.type ?? "object"}${limits(schema)}`;
}

/** The fields of an object, of the items of a list, or of each form of a value; nothing for plain values. */
function fields(given) {
  const schema = resolved(given), all = forms(schema);
  if (all.length > 1) return all.map(form => {
    const { title, description = "" } = resolved(form);
    return make("details", {}, make("summary", {}, `${title}: `, ...prose(description)), ...fields(form));
  });
  if (all[0] !== schema) return fields(all[0]);
  if (schema.type === "array") return fields(schema.items);
  if (typeof schema.additionalProperties === "object") return fields(schema.additionalProperties);
  if (!schema.properties) return [];
  const needed = new Set(schema.required);
  return [make("ul", { class: "fields" }, ...Object.entries(schema.properties).map(([name, value]) =>
    field(name, value, needed.has(name))))];
}

function field(name, schema, needed) {
  const about = schema.description ?? "";
  return make("li", {}, make("code", {}, name), ` ${kind(schema)}${needed ? "" : ", optional"}`,
    ...(about ? [make("span", { class: "soft" }, " – ", ...prose(about))] : []), ...fields(schema));
}

function contents(body) {
  return Object.entries(body ?? {}).map(([type, { schema }]) =>
    make("div", { class: "content" }, make("code", {}, type), ` ${kind(schema)}`, ...fields(schema)));
}

function parameters(operation) {
  const all = operation.parameters ?? [];
  if (!all.length) return [];
  const items = all.map(({ name, in: where, schema, required }) => {
    const item = field(name, schema, required);
    item.append(make("span", { class: "soft" }, ` in the ${where}`));
    return item;
  });
  return [make("h3", {}, "Parameters"), make("ul", { class: "fields" }, ...items)];
}

function responses(operation) {
  const items = Object.entries(operation.responses).sort().map(([status, { description, content }]) => {
    const title = [make("code", {}, status), ` ${status < 300 ? "" : description}`];
    return make("li", {}, ...(status < 300 ? [...title, ...contents(content)]
      : [make("details", {}, make("summary", {}, ...title), ...contents(content))]));
  });
  return [make("h3", {}, "Responses"), make("ul", { class: "fields" }, ...items)];
}

function draw({ info, paths, components }) {
  schemas = components.schemas;
  at("version").textContent = info.version;
  for (const [path, methods] of Object.entries(paths)) for (const [method, operation] of Object.entries(methods)) {
    const id = `${method}${path}`, name = [make("span", { class: "method" }, method.toUpperCase()), ` ${path}`];
    at("contents").append(make("li", {}, make("a", { href: `#${id}` }, make("code", {}, ...name.map(clone)))));
    at("operations").append(make("section", { id, "aria-label": `${method.toUpperCase()} ${path}` },
      make("h2", {}, make("code", {}, ...name)), make("p", {}, ...prose(operation.description ?? "")),
      ...(operation.security ? [make("p", { class: "token" }, "Needs the token: ", make("code", {}, "Authorization: Bearer TOKEN"))] : []),
      ...parameters(operation),
      ...(operation.requestBody ? [make("h3", {}, "Body"), ...contents(operation.requestBody.content)] : []),
      ...responses(operation)));
  }
}

const clone = part => part.cloneNode ? part.cloneNode(true) : part;

read("/openapi.json").then(draw).catch(problem => {
  at("problem").textContent = problem instanceof Problem ? problem.message : "Internal error of this page.";
  at("problem").hidden = false;
});
