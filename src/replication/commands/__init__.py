"""The commands of the apparatus; a module is named after its command."""
