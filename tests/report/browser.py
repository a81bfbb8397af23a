"""A headless Chromium that a test drives through a pipe (Chrome DevTools Protocol)."""

import base64
import json
import os
import shutil
import subprocess
import threading

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Browser:
    """One page; `errors` are the messages and exceptions of its console."""

    def __init__(self, profile):
        to_read, self.to = os.pipe()
        self.from_, from_write = os.pipe()

        def redirect():  # the browser reads commands from descriptor 3 and answers on 4
            low, high = os.dup(to_read), os.dup(from_write)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self.process = subprocess.Popen(
            [CHROMIUM, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=redirect,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self.watch = threading.Timer(120, self.process.kill)  # a browser that hangs ends the reading
        self.watch.start()
        self.number, self.session, self.errors, self.buffer = 0, None, [], b""
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method, **params):
        self.number += 1
        call = {"id": self.number, "method": method, "params": params}
        if self.session:
            call["sessionId"] = self.session
        os.write(self.to, json.dumps(call).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self):
        while b"\0" not in self.buffer:
            more = os.read(self.from_, 1 << 20)
            assert more, "the browser has ended"
            self.buffer += more
        text, _, self.buffer = self.buffer.partition(b"\0")
        event = json.loads(text)
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.errors.append(event["params"])
        if event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] == "error":
            self.errors.append(event["params"])
        return event

    def open(self, path, width=1280, dark=False, scripts=True):
        """Load a file at a width, in light or dark colors."""
        self("Emulation.setScriptExecutionDisabled", value=not scripts)
        self("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])
        self("Page.navigate", url=f"file://{path}")
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def run(self, expression):
        """The value of a JavaScript expression."""
        result = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key, code=0):
        """A key of the keyboard."""
        for kind in ("keyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path):
        """The whole page."""
        data = self("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        self.watch.cancel()
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.from_)
