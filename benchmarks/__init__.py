"""Speed and memory: each module is a command that prints name=value unit."""
