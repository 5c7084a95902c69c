"""The parts of the algorithm gpg: endings by number, embeddings of graphs, the networks and their training."""
