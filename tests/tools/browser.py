"""Drives a headless Chromium over its debugging pipe: no port, no driver, no package of Python.

Usage: with Browser(find_chromium()) as browser: page = browser.open(url, width, height)
As a program: browser.py PAGE PICTURE WIDTH [FIRST LAST] writes a page as PNG, or the part of it from the top of one element to
the bottom of another one (CSS selectors).
Errors: RuntimeError if Chromium ends or reports an error, TimeoutError if it does not answer for a minute.
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile

TIMEOUT_S = 60


def find_chromium():
    """The path of the browser that EBB_CHROMIUM names, or of an installed Chromium, or None."""
    given = os.environ.get("EBB_CHROMIUM")
    names = [given] if given else ["chromium", "chromium-browser", "google-chrome"]
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    def __init__(self, chromium):
        self.folder = tempfile.TemporaryDirectory(prefix="ebb-browser-", ignore_cleanup_errors=True)
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()

        def take_pipes():
            # Chromium reads from file 3 and writes to file 4. Copies first, because these numbers may be in use.
            reading, writing = os.dup(to_read), os.dup(to_write)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self.process = subprocess.Popen(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             "--disable-dev-shm-usage", f"--user-data-dir={self.folder.name}", "about:blank"],
            close_fds=False, preexec_fn=take_pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer = b""
        self.num_commands = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (RuntimeError, TimeoutError, OSError):
            self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        self.folder.cleanup()

    def receive(self):
        while b"\0" not in self.buffer:
            if not select.select([self.from_browser], [], [], TIMEOUT_S)[0]:
                raise TimeoutError(f"Chromium did not answer for {TIMEOUT_S} s")
            part = os.read(self.from_browser, 1 << 20)
            if not part:
                raise RuntimeError("Chromium has ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.num_commands += 1
        command = {"id": self.num_commands, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self.to_browser, data):]
        while True:
            message = self.receive()
            if message.get("id") != self.num_commands:
                self.events.append(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']['message']}")
            else:
                return message["result"]

    def open(self, url, width, height=900, script=""):
        """Opens a page in a window of this size; `script` runs before those of the page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(domain + ".enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        page.call("Page.navigate", url=url)
        page.wait_for("Page.loadEventFired")
        return page


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def wait_for(self, method):
        while not self.events_of(method):
            self.browser.events.append(self.browser.receive())

    def events_of(self, method):
        return [e["params"] for e in self.browser.events if e.get("sessionId") == self.session and e.get("method") == method]

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression[:80]}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def errors(self):
        """What the page wrote to the console as an error or a warning, and the exceptions that nothing caught."""
        texts = [e["exceptionDetails"].get("exception", {}).get("description", e["exceptionDetails"]["text"])
                 for e in self.events_of("Runtime.exceptionThrown")]
        texts += [" ".join(str(a.get("value", a.get("description"))) for a in e["args"])
                  for e in self.events_of("Runtime.consoleAPICalled") if e["type"] in ("error", "warning", "assert")]
        return texts + [e["entry"]["text"] for e in self.events_of("Log.entryAdded")
                        if e["entry"]["level"] in ("error", "warning")]

    def height(self):
        return int(self.evaluate("document.documentElement.scrollHeight"))

    def screenshot(self, width, beside=0):
        """The whole height of the page as PNG, laid out for this width, with so many pixels beside it."""
        height = self.height()
        self.call("Emulation.setDeviceMetricsOverride", width=width + beside, height=height, deviceScaleFactor=1, mobile=False)
        self.evaluate(f"document.documentElement.style.width = '{width}px'")
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def picture(self, width, first, last):
        """The part of the page from the top of one element to the bottom of another one, with a margin, as PNG."""
        edge = "document.querySelector('%s').getBoundingClientRect().%s"
        top, bottom = self.evaluate(edge % (first, "top")) - 16, self.evaluate(edge % (last, "bottom")) + 16
        clip = {"x": 0, "y": max(0, top), "width": width, "height": bottom - max(0, top), "scale": 1}
        self.screenshot(width)  # makes the window as high as the page
        return base64.b64decode(self.call("Page.captureScreenshot", clip=clip)["data"])

    def colours_beside(self, png, width):
        """The number of colours in an image to the right of its first `width` columns."""
        return self.evaluate("""(async () => {
          const image = new Image();
          image.src = "data:image/png;base64,%s";
          await image.decode();
          const canvas = new OffscreenCanvas(image.width, image.height), c = canvas.getContext("2d");
          c.drawImage(image, 0, 0);
          return new Set(new Uint32Array(c.getImageData(%d, 0, image.width - %d, image.height).data.buffer)).size;
        })()""" % (base64.b64encode(png).decode(), width, width))


def main(page, picture, width, first="body", last="body"):
    chromium = find_chromium()
    if chromium is None:
        sys.exit("there is no Chromium (Debian: apt-get install chromium)")
    with Browser(chromium) as browser:
        opened = browser.open(pathlib.Path(page).resolve().as_uri(), int(width))
        pathlib.Path(picture).write_bytes(opened.picture(int(width), first, last))


if __name__ == "__main__":
    main(*sys.argv[1:])
