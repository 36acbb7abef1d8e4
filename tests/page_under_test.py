"""The page in a real Chromium: what a user does there, and what stands there then.

The fixtures are in tests/serving/conftest.py.
"""

import re
import shutil

import pytest

from jaxsyn.data.sentence import conllu

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NEEDS_CHROMIUM = pytest.mark.skipif(
  not CHROMIUM, reason="no Chromium is installed"
)

LINE = "the old duck will often carry a bell ."
OTHER = "the farmer sees it ."
LONG = "the old duck will often carry a bell and the farmer sees it"  # 13 words


def is_done(document):
  expect(document.locator("#status")).to_have_text(
    re.compile(r"^(Translated|Not translated)"), timeout=120_000
  )
  expect(document.locator("#answers [aria-busy=true]")).to_have_count(0)


def ask(document, line, right=""):
  document.get_by_label("Beside it").select_option(right)
  document.get_by_label("Sentence").fill(line)
  document.get_by_role("button", name="Translate", exact=True).click()
  is_done(document)


def parse_of(document):
  """The tree that the page would send."""
  block = document.get_by_label("A tree of your own").input_value()
  blocks = conllu.blocks_of_text(block + "\n\n", "page")
  return conllu.attach(blocks, LINE)


def lead(document, child, to):
  """Takes the arc of a word by its dot, and leads it to a word, or the root."""
  dot = document.locator(f"[data-child='{child}'] circle.dot").bounding_box()
  if to == "root":
    line = document.locator(".roots").bounding_box()
    end = (line["x"] + 150, line["y"] - 6)
  else:
    word = document.locator("text.word").nth(to).bounding_box()
    end = (word["x"] + word["width"] / 2, word["y"] + word["height"] / 2)
  document.mouse.move(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
  document.mouse.down()
  document.mouse.move(*end, steps=5)
  document.mouse.up()
