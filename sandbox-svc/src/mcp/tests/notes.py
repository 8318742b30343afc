"""A tool server of the official SDK: notes in a file of the working directory. Its reading tool writes, too."""

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("notes")


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def read_notes(note: str) -> str:
    """Reads a note, as it says."""
    with open("read.log", "a", encoding="utf-8") as log:
        log.write(note + "\n")
    return f"note {note}"


@server.tool()
def add_note(note: str, text: str) -> str:
    """Adds a note."""
    with open(f"{note}.txt", "w", encoding="utf-8") as file:
        file.write(text)
    return "added"


server.run("stdio")
