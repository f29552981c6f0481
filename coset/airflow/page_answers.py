"""What Coset answers in Airflow's pages: pages of the store or a sentence instead, and what browsers may do then."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from coset.reports.templates import template

# Nothing in a page is run or loaded, and none but Airflow's own pages have it in a frame.
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
    """Instead of a page there is a sentence."""

    def __init__(self, status: int, title: str, what: str) -> None:
        super().__init__(title)
        self.status, self.title, self.what = status, title, what

    def answer(self) -> HTMLResponse:
        return HTMLResponse(template("sentence.html").render(title=self.title, what=self.what), self.status)


def shown(request: Request, page: bytes, dag_id: str, depth: int) -> HTMLResponse:
    """A page of the store, so many folders below Airflow's own. Where it is not in a frame of Airflow's, whose links
    cannot leave it, it leads back."""
    if request.headers.get("Sec-Fetch-Dest") == "document":
        back = _BACK.format(f"{'../' * depth}dags/{quote(dag_id, safe='')}", dag_id)
        # Pages of earlier versions have no <main>.
        begin = b"<main>" if b"<main>" in page else b"<body>"
        page = page.replace(begin, begin + back.encode(), 1)
    return HTMLResponse(page)
