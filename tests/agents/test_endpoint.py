"""The endpoint policy against a server on the loopback."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lethe_env.agents.endpoint import EndpointPolicy
from lethe_env.agents.policy import PolicyError

OBSERVATION = {"task": "softmax/softmax", "prompt": "Rewrite this.", "feedback": ""}


class Server(ThreadingHTTPServer):
    """Speaks as much of the protocol as one completion takes."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = "```python\nclass ModelNew: pass\n```"
        self.status = 200
        self.delay_s = 0.0
        self.requests = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, json.loads(body)))
        time.sleep(self.server.delay_s)
        message = {"role": "assistant", "content": self.server.content}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
        data = json.dumps({**reply, "choices": choices}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def policy(server):
    made = EndpointPolicy(
        model="coder", base_url=f"http://127.0.0.1:{server.server_port}/v1", retries=0
    )
    yield made
    if made._client is not None:
        made._client.close()


def test_the_answer_is_the_fenced_code_and_the_question_has_an_example(server, policy):
    assert policy.act(OBSERVATION) == "class ModelNew: pass\n"
    path, body = server.requests[0]
    assert path == "/v1/chat/completions"
    assert body["model"] == "coder"
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][-1]["content"] == "Rewrite this."


@pytest.mark.parametrize("content", ["no code today", "", None])
def test_an_answer_without_code_is_a_comment(server, policy, content):
    server.content = content
    assert policy.act(OBSERVATION).startswith("# no source text: ")


def test_a_server_that_fails_is_an_error_that_names_it(server, policy):
    server.status = 500
    with pytest.raises(PolicyError, match=f"coder at http://127.0.0.1:{server.server_port}/v1"):
        policy.act(OBSERVATION)


def test_a_server_that_hangs_is_an_error_in_time(server, policy):
    server.delay_s, policy.timeout_s = 1.0, 0.1
    with pytest.raises(PolicyError, match="timed out"):
        policy.act(OBSERVATION)
