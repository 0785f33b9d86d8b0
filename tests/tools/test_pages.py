#!/usr/bin/env python3
"""Opens the pages of `ebb plan --html` and `ebb profile --html` in a headless Chromium. At each width no element and no text may
be cut or outside of the window, the console must be empty, and the sums of tables and tiles must agree.

Usage: test_pages.py EBB
Environment: EBB_CHROMIUM, the browser [chromium]; EBB_REQUIRE_CHROMIUM=1 fails without one; EBB_SCREENSHOTS, a folder for the
screenshots. Exit code: 77 if there is no Chromium.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from browser import Browser, find_chromium  # noqa: E402

EBB = sys.argv.pop()
WIDTHS = (420, 900, 1600)
BESIDE = 24  # pixels to the right of the window that must be empty

RECORD_CANVAS_TEXTS = """
window.canvasTexts = [];
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function(text, x, y) {
  window.canvasTexts.push([this.canvas.id, text, x, x + this.measureText(text).width, this.canvas.clientWidth]);
  return fillText.apply(this, arguments);
};
"""

# What is cut or outside of the window, one line each.
FIND_OVERFLOW = """(() => {
  const found = [], width = document.documentElement.clientWidth;
  const name = e => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + " '" + e.textContent.slice(0, 40) + "'";
  if (document.documentElement.scrollWidth > width) found.push("the page scrolls sideways");
  for (const e of document.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect();
    if (box.width === 0) continue;
    if (box.left < -0.5 || box.right > width + 0.5) found.push(name(e) + " is outside of the window");
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).overflowX !== "visible")
      found.push(name(e) + " is cut");
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let t = texts.nextNode(); t; t = texts.nextNode()) {
    if (!t.textContent.trim() || ["SCRIPT", "STYLE"].includes(t.parentElement.tagName)) continue;
    const box = t.parentElement.closest("td, th, p, h1, h2, button, .tile, .legend, div").getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(t);
    for (const r of range.getClientRects())
      if (r.left < box.left - 1 || r.right > box.right + 1) found.push("'" + t.textContent.slice(0, 40) + "' leaves its box");
  }
  for (const [id, text, from, to, end] of window.canvasTexts)
    if (from < 0 || to > end + 1) found.push("'" + text + "' is cut in the picture " + id);
  return found;
})()"""

# Each table as rows of [class, [[text, value], ...]]; each tile as its label with [text, value].
READ_NUMBERS = """(() => {
  const cell = e => [(e.querySelector("b") || e).textContent, e.dataset.value === undefined ? null : +e.dataset.value];
  const tables = {}, tiles = {};
  for (const t of document.querySelectorAll("table"))
    tables[t.id] = [...t.querySelectorAll("tr:not(.head)")].map(r => [r.className, [...r.querySelectorAll("td")].map(cell)]);
  for (const t of document.querySelectorAll(".tile")) tiles[t.dataset.label] = cell(t);
  return {tables, tiles};
})()"""


def sums_that_differ(numbers, data):
    """Sums of tables and tiles that do not agree, one line each."""
    found = []

    def same(what, a, b, relative=0.0):
        if abs(a - b) > relative * max(abs(a), abs(b)):
            found.append(f"{what}: {a} and {b}")

    def column(rows, i):
        return sum(cells[i][1] or 0 for _, cells in rows)

    tables, tiles = numbers["tables"], numbers["tiles"]
    rows = {cells[0][0]: cells for _, cells in tables["spent"]}
    waits = [r for r in tables["spent"] if r[1][0][0].startswith("waiting for ")]
    step = next(tile for label, tile in tiles.items() if label.startswith("step, "))
    same("the waits by cause and their total", column(waits, 1), rows["compute waited"][1][1], 1e-9)
    same("the parts of the step and its time", sum(c[1][1] for name, c in rows.items() if name != "step" and c not in
                                                   [w[1] for w in waits]), rows["step"][1][1], 1e-9)
    for tile, cell in ((step, rows["step"][1]), (tiles["compute waited"], rows["compute waited"][1])):
        if tile != cell:
            found.append(f"a tile says {tile[0]}, its table says {cell[0]}")
    *parts, (_, total) = tables["traffic"]
    for i, label in ((3, "loaded"), (5, "stored")):
        same(f"bytes {label} by class and in all", column(parts, i), total[i][1])
        same(f"bytes {label} in the table and in the plan", total[i][1], data[label + "_bytes"])
        if tiles[label] != total[i]:
            found.append(f"the tile '{label}' says {tiles[label][0]}, the table says {total[i][0]}")
    for i in (2, 4):
        same("the number of copies", column(parts, i), total[i][1])
    *layers, (_, total) = tables["layers"]
    for i in range(1, 5):
        same("the bytes of all layers", column(layers, i), total[i][1] or 0)
    same("the bytes of all layers and those of the plan", total[4][1], data["loaded_bytes"] + data["stored_bytes"])
    for name, label in (("load", "loaded"), ("store", "stored")):
        busy = next(cells for _, cells in tables["busy"] if cells[0][0] == name)
        same(f"bytes {label} by the stream", busy[4][1] or 0, data[label + "_bytes"])
    return found


def data_of(page):
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1]
    return json.loads(text.replace("<\\/", "</"))


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.held.name)
        cls.browser = Browser(CHROMIUM)

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.held.cleanup()

    def ebb(self, name, *arguments):
        """The page that a command writes."""
        path = self.folder / (name + ".html")
        done = subprocess.run([EBB, *arguments, "--html", path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return path

    def profile(self):
        text = self.folder / "text"
        text.write_text("A short text.\n" * 3000)
        return self.ebb("profile", "profile", "--preset", "toy-bytes", "--data", text, "--chunk-size", "256KiB", "--device", "host",
                        "--threads", "2", "--seq-length", "32", "--device-memory", "5MiB", "--steps", "2")

    def faults(self, path, width, click=None):
        """What is wrong with a page, one line each."""
        page = self.browser.open(path.as_uri(), width, script=RECORD_CANVAS_TEXTS)
        if click:
            page.evaluate(f"[...document.querySelectorAll('button')].find(b => b.textContent === '{click}').click()")
        found = page.evaluate(FIND_OVERFLOW) + page.errors()
        found += sums_that_differ(page.evaluate(READ_NUMBERS), data_of(path.read_text()))
        shot = page.screenshot(width, BESIDE)
        if page.colours_beside(shot, width) != 1:
            found.append("something is drawn beside the window")
        if os.environ.get("EBB_SCREENSHOTS"):
            (pathlib.Path(os.environ["EBB_SCREENSHOTS"]) / f"{path.stem}-{width}.png").write_bytes(page.screenshot(width))
        page.call("Page.close")
        return found

    def test_a_planned_step(self):
        path = self.ebb("plan", "plan", "--preset", "llama-3.1-8b", "--machine", "rtx4090", "--micro-batch-size", "4")
        for width in WIDTHS:
            with self.subTest(width=width):
                self.assertEqual(self.faults(path, width), [])

    def test_a_measured_step(self):
        path = self.profile()
        for width in WIDTHS:
            for view in ("measured", "predicted")[:1 if width > 420 else 2]:
                with self.subTest(width=width, view=view):
                    self.assertEqual(self.faults(path, width, view), [])

    def test_a_small_step(self):
        path = self.ebb("small", "plan", "--preset", "toy-bytes", "--machine", "h200")
        self.assertEqual(self.faults(path, 420), [])

    def test_each_fault_is_found(self):
        path = self.ebb("gpt2", "plan", "--preset", "gpt2", "--machine", "rtx4090", "--device-memory", "1GiB",
                        "--chunk-size", "16MiB")
        good = path.read_text()
        loaded = data_of(good)["loaded_bytes"]
        self.assertGreater(loaded, 0)
        wide = '<p style="width: 2000px">wide</p></body>'
        cut = '<div style="width: 60px; overflow: hidden; white-space: nowrap">a long text that is cut</div></body>'
        drawn = '<i style="box-shadow: 1540px 0 0 9px red; display: block; width: 9px; height: 9px"></i></body>'
        for name, old, new, expected in (
                ("good", "", "", None),
                ("wide", "</body>", wide, "outside of the window"),
                ("cut", "</body>", cut, "is cut"),
                ("drawn", "</body>", drawn, "beside the window"),
                ("error", "showTraffic();\n", 'showTraffic(); console.error("planted");\n', "planted"),
                ("exception", "showTraffic();\n", "showTraffic(); setTimeout(() => missing());\n", "missing"),
                ("bytes", f'"loaded_bytes":{loaded}', f'"loaded_bytes":{loaded + 1}', "bytes loaded"),
                ("waits", "const waited = sum(causes,", "const waited = 1e-3 + sum(causes,", "the waits by cause"),
                ("tile", "loaded_bytes, \"bytes\"], [\"stored\"", "loaded_bytes + 1e8, \"bytes\"], [\"stored\"", "the tile 'loaded'"),
                ("canvas", "c.measureText(t).width <= width", "true", "is cut in the picture")):
            with self.subTest(name=name):
                self.assertTrue(old in good, old)
                path.write_text(good.replace(old, new, 1) if old else good)
                found = self.faults(path, 1600)
                if expected is None:
                    self.assertEqual(found, [])
                else:
                    self.assertTrue(any(expected in line for line in found), found)


CHROMIUM = find_chromium()
if __name__ == "__main__":
    if CHROMIUM is None:
        required = os.environ.get("EBB_REQUIRE_CHROMIUM") == "1"
        print(f"{'failed' if required else 'skipped'}: there is no Chromium to open the pages. `tools/setup pages` installs it "
              "(about 300 MB); EBB_CHROMIUM names another browser.")
        sys.exit(1 if required else 77)
    unittest.main()
