"""Glue as moto has it, in an environment of its own, which refuses a change of another version than a table has, as AWS
does and moto does not. `python tests/glue.py` says its port, and ends with its input."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.glue.responses import GlueResponse
from moto.server import ThreadedMotoServer

print = partial(print, flush=True)
changed = GlueResponse.update_table


def update_table(response: Any) -> Any:
    asked = response.parameters
    table = response.glue_backend.get_table(asked["DatabaseName"], asked["TableInput"]["Name"])
    if asked.get("VersionId", newest := table.as_dict()["VersionId"]) != newest:
        raise JsonRESTError("ConcurrentModificationException", f"the table has version {newest}")
    return changed(response)


GlueResponse.update_table = update_table
server = ThreadedMotoServer(port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1])
sys.stdin.read()
server.stop()
