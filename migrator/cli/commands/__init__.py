"""Declared commands: names, arguments, options and helps. A help loads no more than this folder and click."""
