// libtroupe is the static libraries of the tree and no source of its own; a target needs one.
