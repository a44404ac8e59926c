"""The command line: each command reads the job, wires, calls one stage, prints and gives an exit code."""
