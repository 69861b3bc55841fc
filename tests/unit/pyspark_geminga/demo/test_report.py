"""Proves that the report is one file that fetches nothing."""

from __future__ import annotations

import re

from pyspark_geminga.demo.charts import bars
from pyspark_geminga.demo.report import Section, page


def test_the_page_is_self_contained_and_escapes_what_it_shows() -> None:
    sections = [Section("How <long>", "Lines & files.", bars([("a", 1.0)]))]
    text = page("A & B", "Words.", [("1,234", "events <stored>")], sections)
    assert "<h1>A &amp; B</h1>" in text
    assert "<b>1,234</b><span>events &lt;stored&gt;</span>" in text
    assert "<h2>How &lt;long&gt;</h2><p>Lines &amp; files.</p><svg" in text
    assert not re.search(r"https?://|<script|<link|<img|@import|url\(", text)
