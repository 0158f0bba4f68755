"""MatrixOne's formats and protocol: object files, DDL, a client's statements and a server's answers. Imports nothing
from the rest of the project."""
