"""Building blocks of methods: backbones, heads, losses, memory, optimizer."""
