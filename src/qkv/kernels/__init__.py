"""How attention is computed: the request, the plan shared by all layers, and the backends."""
