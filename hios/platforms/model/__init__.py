"""GPUs that are not installed here: costs are predicted from descriptions, and nothing is measured or executed.

devices       what a device is, and the options that select it; costs of a graph from descriptions
descriptions  gpus/*.yaml and links/*.yaml, or files of the user: data sheet values, each with its source
kernel_work   the kernels of an operator, with the FLOPs and bytes of each
roofline      how long a kernel takes on a GPU, how much of the GPU it occupies, and the share of data sheet values
              that kernels reach: a few parameters for all GPUs and networks
reporting     the GPUs in words, for the report
"""
