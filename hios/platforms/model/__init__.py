"""GPUs that are not here: costs predicted from descriptions, nothing measured and nothing executed.

platform      what the devices are, and the options that name them
descriptions  gpus/*.yaml and links/*.yaml, or files of the user's: numbers of datasheets, each with its source
efficiency    what kernels reach of these numbers: a few parameters for all GPUs and networks
kernel_work   the kernels of an operator: what each computes and moves
roofline      how long a kernel takes on a GPU, and how much of the GPU it holds
predicting    a graph and descriptions to costs
reporting     the GPUs in words
"""
