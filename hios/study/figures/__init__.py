"""How the figures of each paper are drawn, a module a paper; figures.yaml beside this folder says what each is.

Rows and charts that figures share are in the modules ``*_rows`` beside this folder.
"""
