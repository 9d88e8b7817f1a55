"""Registration of the batch-invariant mode with engines that train and serve; each module names the engine's interface.

None of them imports an engine before a function is called.
"""
