"""Judges requests by the description they were made from: one line of JSON in, one line per complaint out."""

import base64
import json
import sys
from urllib.parse import parse_qsl, urlsplit

from openapi_core import Config, OpenAPI
from openapi_core.testing import MockRequest
from werkzeug.datastructures import ImmutableMultiDict

spec_path, requests_path, base = sys.argv[1:4]
with open(spec_path) as file:
    document = json.load(file)
# Servers of operations are not what is judged; nor is the description itself.
document["servers"] = [{"url": base}]
for item in document["paths"].values():
    for part in [item, *[value for value in item.values() if isinstance(value, dict)]]:
        part.pop("servers", None)
        part.pop("security", None)
document.pop("security", None)


def simplified(value):
    """Takes out what the judge cannot read: files that discriminators name, and alternatives among types of a parameter."""
    if isinstance(value, list):
        return [simplified(item) for item in value if not is_deep(item)]
    if not isinstance(value, dict):
        return value
    kept = {key: simplified(item) for key, item in value.items() if key != "discriminator" or not isinstance(item, dict)}
    if isinstance(kept.get("in"), str) and any(key in kept.get("schema", {}) for key in ("anyOf", "oneOf")):
        kept["schema"] = {}
    if isinstance(kept.get("encoding"), dict) and isinstance(kept.get("schema"), dict):
        for name in [name for name, encoding in kept["encoding"].items() if is_deep(encoding)]:
            kept["encoding"].pop(name)
            kept["schema"]["properties"].pop(name)
    # Forms are read property by property: what has none is lost to the judge.
    if isinstance(kept.get("required"), list) and isinstance(kept.get("properties"), dict):
        kept["required"] = [name for name in kept["required"] if name in kept["properties"]]
    return kept


def is_deep(item):
    return isinstance(item, dict) and item.get("style") == "deepObject"


# A fragment never reaches a server.
for path in [path for path in document["paths"] if "#" in path]:
    document["paths"].setdefault(path.split("#")[0], document["paths"].pop(path))


media_types = set()
for item in document["paths"].values():
    for operation in item.values():
        if isinstance(operation, dict):
            media_types |= set(operation.get("requestBody", {}).get("content", {}))
for body in document.get("components", {}).get("requestBodies", {}).values():
    media_types |= set(body.get("content", {}))
readers = {kind: json.loads for kind in media_types if kind.endswith("+json") or kind == "*/*"}
document = simplified(document)
api = OpenAPI.from_dict(document, config=Config(spec_validator_cls=None, extra_media_type_deserializers=readers))
with open(requests_path) as file:
    requests = json.load(file)
for request in requests:
    url = urlsplit(request["url"])
    made = MockRequest(
        f"{url.scheme}://{url.netloc}",
        request["method"].lower(),
        url.path,
        args=ImmutableMultiDict(parse_qsl(url.query, keep_blank_values=True)),
        headers=request["headers"],
        cookies=request["cookies"],
        data=base64.b64decode(request["body"]) if request["body"] is not None else b"",
        content_type=request["content_type"] or "",
    )
    for error in api.iter_request_errors(made):
        cause = error.__cause__ or error
        details = [str(getattr(e, "message", e))[:200] for e in getattr(cause, "schema_errors", [])] or str(cause)[:300]
        print(json.dumps({"tool": request["tool"], "error": f"{type(error).__name__}: {details}"}))
print(json.dumps({"judged": len(requests)}))
