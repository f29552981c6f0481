"""The responses of Coset's pages in Airflow: a page of the store or a sentence, with headers that bind the browser."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from fastapi import Request, status
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup
from starlette.exceptions import HTTPException

from coset.reports.templates import template

# Browsers run and load nothing from a page, and only Airflow's own pages may frame it.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; "
        "sandbox allow-same-origin"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_BACK = Markup('<nav><a href="{}">DAG {} in Airflow</a></nav>')


class Unshown(Exception):
    """Raised to answer with a sentence in the place of a page."""

    def __init__(self, status: int, title: str, what: str) -> None:
        super().__init__(title)
        self.status, self.title, self.what = status, title, what

    def answer(self) -> HTMLResponse:
        return HTMLResponse(template("sentence.html").render(title=self.title, what=self.what), self.status)


def shown(request: Request, page: bytes, dag_id: str, depth: int) -> HTMLResponse:
    """A page of the store, `depth` folders below Airflow's base path. Outside of Airflow's frame it gets a link
    back."""
    if request.headers.get("Sec-Fetch-Dest") == "document":
        back = _BACK.format(f"{'../' * depth}dags/{quote(dag_id, safe='')}", dag_id)
        # Pages of earlier versions have no <main>.
        begin = b"<main>" if b"<main>" in page else b"<body>"
        page = page.replace(begin, begin + back.encode(), 1)
    return HTMLResponse(page)


def to_log_in(request: Request, refused: HTTPException) -> Response | None:
    """For a person whom Airflow does not know, its login, which leads back; in a frame, where it cannot be, a sentence.
    None for a program, and for who is known."""
    # What Airflow's own pages take for that.
    unknown = refused.status_code == status.HTTP_401_UNAUTHORIZED or refused.detail == "Invalid JWT token"
    match request.headers.get("Sec-Fetch-Dest") if unknown else None:
        case "document":
            asked = f"{request.url.path}?{request.url.query}".rstrip("?")
            airflow = request.scope["root_path"].rpartition("/")[0]
            return RedirectResponse(f"{airflow}/api/v2/auth/login?{urlencode({'next': asked})}")
        case "iframe":
            return Unshown(refused.status_code, "You are not logged in", "Reload Airflow's page to log in.").answer()
        case _:
            return None
