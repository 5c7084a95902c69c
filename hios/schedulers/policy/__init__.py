"""What the algorithm gpg is made of: endings by number, embeddings of graphs, the networks and their training."""
