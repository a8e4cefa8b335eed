"""Programs that the lab runs by their files. They import nothing of labkit, and so no torch that
they do not ask for: what their children have, they have from them.
"""
