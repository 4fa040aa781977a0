"""A shop server that publishes its own OpenAPI document, and stores every request that it received."""

import sys
from typing import Annotated

import uvicorn
from fastapi import Body, Cookie, Depends, FastAPI, File, Form, Header, Query, Response, UploadFile
from fastapi.security import HTTPBearer
from pydantic import BaseModel

app = FastAPI(title="Shop")
things: dict[int, dict] = {}


class Thing(BaseModel):
    name: str
    price: float | None = None
    tags: list[str] = []


@app.post("/things/{thing_id}", operation_id="createThing", status_code=201)
def create(thing_id: int, thing: Thing) -> Thing:
    things[thing_id] = thing.model_dump()
    return thing


@app.get("/things/{thing_id}", operation_id="getThing", responses={404: {}})
def get(thing_id: int, response: Response):
    if thing_id not in things:
        response.status_code = 404
        return {"problem": "no such thing"}
    return things[thing_id]


@app.put("/things/{thing_id}", operation_id="replaceThing")
def replace(thing_id: int, thing: Thing) -> Thing:
    things[thing_id] = thing.model_dump()
    return thing


@app.patch("/things/{thing_id}", operation_id="renameThing")
def rename(thing_id: int, name: Annotated[str, Body(embed=True)]) -> dict:
    things[thing_id]["name"] = name
    return things[thing_id]


@app.delete("/things/{thing_id}", operation_id="deleteThing", status_code=204)
def delete(thing_id: int) -> None:
    things.pop(thing_id)


@app.get("/search", operation_id="search")
def search(
    q: str,
    tag: Annotated[list[str], Query()] = [],
    limit: int = 10,
    x_trace: Annotated[str | None, Header()] = None,
    session: Annotated[str | None, Cookie()] = None,
) -> dict:
    return {"q": q, "tag": tag, "limit": limit, "trace": x_trace, "session": session}


@app.post("/login", operation_id="login")
def login(user: Annotated[str, Form()], word: Annotated[str, Form()]) -> dict:
    return {"user": user, "word": word}


@app.post("/upload", operation_id="upload")
async def upload(file: Annotated[UploadFile, File()], note: Annotated[str, Form()] = "") -> dict:
    return {"bytes": list(await file.read()), "note": note}


@app.post("/many", operation_id="createMany")
def many(all: Annotated[list[Thing], Body()]) -> int:
    return len(all)


@app.get("/picture", operation_id="picture", response_class=Response)
def picture():
    return Response(b"\x89PNG\x00\xff", media_type="image/png")


@app.get("/report", operation_id="report", response_class=Response)
def report():
    return Response(b"%PDF\x00\xff", media_type="application/pdf")


@app.get("/secret", operation_id="secret")
def secret(token: Annotated[object, Depends(HTTPBearer())]) -> dict:
    return {"let_in": token.credentials == "s3cret-t0ken"}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
