"""Pages from the templates beside this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jinja2


def filled(template: str, values: Mapping[str, Any], filters: Mapping[str, Callable[..., str]] | None = None) -> str:
    """A template with its values.

    Args:
        template: name of the file.
        values: by name; one that is missing is an error.
        filters: by name, besides those of Jinja2.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hios.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters or {})
    return environment.get_template(template).render(**values)
