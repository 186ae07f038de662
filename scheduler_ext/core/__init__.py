"""The pure centre: values and rules without I/O, clocks or chance."""
