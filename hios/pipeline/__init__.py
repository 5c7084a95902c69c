"""What only the Snakefile needs: the configuration, its options, how ranks are launched."""
