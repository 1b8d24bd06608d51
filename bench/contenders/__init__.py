"""What is measured. A contender is a class: made once with a case's options, and each call does one unit of work.

A call returns when the work is done (on a GPU: after a synchronize). `facts`, if there are any, are kept with the
results. These modules run in the contender's own interpreter: beside PyTorch they import what they measure, no more.
"""
