"""Holds a scheduler to its promises: loads made by hypothesis, on the real core and allocator
with the toy model and a virtual clock. `kit.check` is the way in."""
