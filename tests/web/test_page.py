"""The page of a service, as people meet it: by keyboard, in the dark, on a phone, in trouble, with hostile names."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from browsing import Open, Told, telling
from prometheus_client import CollectorRegistry
from statuses import CONSUMERS, HOSTILE, NOW, document, group_view, hostile

from rscylla._timeuuid import datetime_of
from rscylla.clock import SystemClock
from rscylla.event import SimpleEvent
from rscylla.reflex import Consumer, Spec
from rscylla.service import Service, http
from rscylla.service.page import status
from rscylla.testing import FakeCursorStore, FakeStream

PATIENCE_S = 60.0
LATER = NOW + timedelta(seconds=5)

LINE = "document.querySelector('#consumers article:nth-child({}) figure:nth-of-type({}) .line').getAttribute('d')"


def text(shown: Any, selector: str) -> str:
    found: str = shown.page.locator(selector).inner_text()
    return found


def service(stream: FakeStream) -> Service:
    registry = CollectorRegistry()
    consumer = Consumer("billing", lambda event, run: None, registry=registry)
    return Service([Spec(stream, FakeCursorStore(), consumer, registry=registry)], registry=registry, port=0)


def events(*numbers: int) -> list[SimpleEvent]:
    now_us = SystemClock().now_us()
    return [SimpleEvent(f"e{number}", timestamp=datetime_of(now_us)) for number in numbers]


# ---------------------------------------------------------------- a service


def test_charts_move_when_events_come(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "EVERY_S", 0.05)
    stream = FakeStream(events(1, 2))
    with service(stream) as running:
        shown = open_page("http://{}:{}/".format(*running.address or ()))
        shown.load()
        shown.until("document.querySelector('#consumers .line') !== null")
        shown.until("[...document.querySelectorAll('.tiles dd')].some((e) => e.textContent === '2')")
        before = shown.page.evaluate(LINE.format(1, 2))
        stream.append(*events(3, 4, 5))
        shown.until("[...document.querySelectorAll('.tiles dd')].some((e) => e.textContent === '5')")
        shown.until(f"(before) => {LINE.format(1, 2)} !== before", before)
        assert text(shown, "#health") == "● ready"
        assert "1 streaming" in text(shown, "#lanes summary")


def test_it_asks_for_nothing_but_itself_and_its_status(open_page: Open, told: Told) -> None:
    told.document = document()
    shown = open_page(told.url)
    shown.load()
    assert set(shown.asked) == {told.url, told.url + "status"} | {u for u in shown.asked if u.startswith("data:")}
    assert shown.page.context.cookies() == []


def test_pages_that_ask_again_and_again_keep_no_probe_out(open_page: Open) -> None:
    with service(FakeStream(events(1))) as running, ExitStack() as stack:
        assert running.address is not None
        url = "http://{}:{}".format(*running.address)
        pages = [open_page(f"{url}/") for _ in range(3)]
        for shown in pages:
            shown.forgiven = ("net::ERR",)  # the browser logs each connection that the service closes
            shown.load()
        for _ in range(2 * http.CONNECTIONS):
            idle = stack.enter_context(socket.create_connection(running.address, timeout=PATIENCE_S))
            idle.sendall(b"GET /sta")
            with urllib.request.urlopen(f"{url}/healthz", timeout=PATIENCE_S) as answer:
                assert answer.status == 200
        for shown in pages:  # and they go on: an answer that was cut off is asked for again
            before = text(shown, "#updated")
            shown.until("(before) => document.getElementById('updated').innerText !== before", before)


def test_it_says_so_when_the_service_is_gone_and_comes_back(open_page: Open) -> None:
    with telling() as told:
        told.document = document()
        shown = open_page(told.url)
        shown.forgiven = ("net::ERR",)  # the browser logs each request that is refused
        shown.load()
    shown.until("document.getElementById('health').textContent.includes('no answer')")
    assert shown.page.locator("#consumers article").count() == len(CONSUMERS), "what was known stays"
    with telling(int(told.url.rsplit(":", 1)[1].rstrip("/"))) as again:
        again.document = document(at=LATER)
        shown.until("!document.getElementById('health').textContent.includes('no answer')")


# ---------------------------------------------------------------- what it shows


def test_the_ring_shows_who_holds_what(open_page: Open, told: Told) -> None:
    told.document = document()
    shown = open_page(told.url)
    shown.load()
    label = shown.page.locator(".ring").get_attribute("aria-label")
    assert label == (
        "The token ring in 64 slices: A, orders-0.shop:42, holds 22 slices; B, orders-1.shop:42, holds 21 slices; "
        "C, orders-2.shop:42, holds 20 slices"
    )
    assert [shown.page.locator(f".ring path.{name}").count() for name in ("c0", "c1", "c2", "free", "here")] == [1] * 5
    assert {"A", "B", "C"} <= set(shown.page.locator(".ring text").all_text_contents())
    members = shown.page.locator("#group table").nth(0).locator("tbody tr").all_inner_texts()
    assert [line.split("\t")[:3] for line in members] == [
        ["A orders-0.shop:42 (this process)", "22", "0–21"],
        ["B orders-1.shop:42", "21", "22–42"],
        ["C orders-2.shop:42", "20", "43–62"],
    ]
    newest = shown.page.locator("#group table").nth(1).locator("tbody tr").first.inner_text().split("\t")
    assert newest[1:] == ["0", "A orders-0.shop:42", "orders-2.shop:42", "given"]


def test_a_member_keeps_its_letter_when_others_come_and_go(open_page: Open, told: Told) -> None:
    told.document = document()
    shown = open_page(told.url)
    shown.load()
    group = told.document["group"]
    gone = group["members"].pop(0)
    for one in group["slices"]:
        one["holder"] = group["members"][0]["id"] if one["holder"] == gone["id"] else one["holder"]
    group["members"][0]["slices"] += gone["slices"]
    told.document = document() | {"group": group}
    shown.until("document.querySelectorAll('#group table:first-of-type')[0].tBodies[0].rows.length === 2")
    assert "B, orders-1.shop:42, holds 43 slices" in shown.page.locator(".ring").get_attribute("aria-label")
    assert shown.page.locator(".ring path.c0").count() == 0


def test_without_a_group_it_shows_the_lanes_alone(open_page: Open, told: Told) -> None:
    told.document = document(in_group=False, consumers=("billing", "audit"))
    shown = open_page(told.url)
    shown.load()
    assert not shown.page.locator("#group").is_visible()
    assert [shown.page.locator("#lanes details").nth(n).get_attribute("open") for n in range(2)] == [None, ""]
    assert shown.page.locator("#lanes tbody tr").count() == 64
    assert "▲ restarting" in text(shown, "#lanes tbody tr:nth-child(4)")
    assert "no node answers; start one" in text(shown, "#lanes tbody tr:nth-child(4)")


def test_trouble_is_told_in_words(open_page: Open, told: Told) -> None:
    told.document = document()
    shown = open_page(told.url)
    shown.load()
    assert text(shown, "#health") == "▲ 2 checks failed"
    assert 'group "orders": nobody holds slice 63' in text(shown, "#failed")
    assert 'lane "audit[3/64]": is restarting: no node answers; start one' in text(shown, "#failed")
    assert "ValueError" in text(shown, "#letters")
    assert "4111" not in shown.page.content()
    assert "▲ open" in text(shown, "#guards")
    assert "● closed" in text(shown, "#guards")
    assert "restarted: no node answers" in text(shown, "#notes")
    assert shown.page.locator("#generations tbody tr").count() == len(CONSUMERS)
    assert shown.page.locator("#consumers .mark").count() == len(CONSUMERS)


def test_row_values_are_shown_where_they_were_asked_for(open_page: Open, told: Told) -> None:
    told.document = document(consumers=("billing", "audit"), show_values=True)
    shown = open_page(told.url)
    shown.load()
    shown.page.locator("#letters summary").first.click()
    shown.until("document.querySelector('#letters pre')?.textContent.includes('ValueError: 4111')")


def test_markup_cannot_become_part_of_the_page_even_by_its_own_script(open_page: Open, told: Told) -> None:
    told.document = document(consumers=("billing",))
    shown = open_page(told.url)
    shown.load()
    shown.forgiven = "require-trusted-types-for", "TrustedHTML"
    script = "try { document.body.innerHTML = '<p>x</p>'; 'made' } catch (error) { error.name }"
    assert shown.page.evaluate(script) == "TypeError"


def test_a_chart_has_its_numbers_in_a_table(open_page: Open, told: Told) -> None:
    told.document = document()
    shown = open_page(told.url)
    shown.load()
    card = shown.page.locator("#consumers article").first
    card.locator("summary").click()
    shown.until("document.querySelector('#consumers tbody') !== null")
    rows = card.locator("tbody tr").all_inner_texts()
    assert len(rows) == 15
    lag = told.document["history"]["consumers"]["billing"]["lag_s"]
    assert rows[0].split("\t")[1] == f"{lag[-1]:.1f} s".replace(".0 s", " s")
    assert "lowest" in card.locator("svg").first.get_attribute("aria-label")


# ---------------------------------------------------------------- hostile names


def test_names_and_errors_are_shown_as_they_are_and_run_nothing(open_page: Open, told: Told) -> None:
    told.document = hostile(document(consumers=("billing", "audit"), show_values=True))
    shown = open_page(told.url)
    shown.load()
    for summary in shown.page.locator("summary").all():
        if summary.locator("..").get_attribute("open") is None:
            summary.click()
    told.document = hostile(document(consumers=("billing", "audit"), at=LATER, show_values=True))
    shown.until("(said) => document.getElementById('updated').innerText !== said", text(shown, "#updated"))
    assert shown.page.evaluate("window.hurt") is None
    assert shown.page.locator("img").count() == 0
    assert shown.page.locator("script").count() == 1
    for section in ("failed", "overview", "group", "consumers", "lanes", "generations", "letters", "guards", "notes"):
        shown_here = text(shown, f"#{section}")
        assert (HOSTILE in shown_here) is (section != "overview"), section


# ---------------------------------------------------------------- keyboard, colours, sizes


def test_everything_is_reached_by_keyboard_and_the_focus_is_seen(open_page: Open, told: Told) -> None:
    told.document = document()
    shown = open_page(told.url)
    shown.load()
    keyboard, walked = shown.page.keyboard, []
    look = """() => {
        const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
        return [e.tagName, e.id || e.getAttribute('aria-label') || e.textContent.slice(0, 60),
            style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2, box.width > 0 && box.left >= 0];
    }"""
    for _ in range(200):
        keyboard.press("Tab")
        tag, name, is_seen, is_in_sight = shown.page.evaluate(look)
        if tag == "BODY":
            break
        assert is_seen, name
        assert is_in_sight, name
        walked.append((tag, name))
    assert walked[:2] == [("A", "Skip to content"), ("BUTTON", "pause")]
    order = [name for tag, name in walked if tag in ("DIV", "SUMMARY")]
    assert order[:3] == ["Members", "Who took what", "All slices as a table"]
    assert [name for tag, name in walked if tag == "A"][1:3] == ["Failed checks", "Overview"]
    assert {"Lanes of audit", "Switches", "Newest dead letters", "Notes"} <= set(order)
    assert walked[-1] == ("A", "/metrics")


def test_the_skip_link_leads_to_the_content(open_page: Open, told: Told) -> None:
    told.document = document()
    shown = open_page(told.url)
    shown.load()
    shown.page.keyboard.press("Tab")
    shown.page.keyboard.press("Enter")
    assert shown.page.evaluate("document.activeElement.id") == "main"


def test_focus_and_open_parts_outlast_an_update(open_page: Open, told: Told) -> None:
    told.document = document()
    shown = open_page(told.url)
    shown.load()
    summary = shown.page.locator("#group summary")
    summary.focus()
    shown.page.keyboard.press("Enter")
    shown.until("document.querySelectorAll('#group tbody')[2]?.rows.length === 64")
    shown.page.evaluate("window.before = document.activeElement")
    told.document = document(at=LATER, seed=1.0, consumers=CONSUMERS[1:])  # a consumer has gone, too
    shown.until(f"document.querySelectorAll('#consumers article').length === {len(CONSUMERS) - 1}")
    assert shown.page.evaluate("document.activeElement === window.before && window.before.tagName === 'SUMMARY'")
    assert shown.page.locator("#group table").nth(2).locator("tbody tr").count() == 64
    shown.page.keyboard.press("Enter")
    shown.until("document.querySelectorAll('#group table').length === 2")


def test_updates_can_be_paused(open_page: Open, told: Told) -> None:
    told.document = document()
    shown = open_page(told.url)
    shown.load()
    pause = shown.page.locator("#pause")
    pause.focus()
    shown.page.keyboard.press("Space")
    assert pause.get_attribute("aria-pressed") == "true"
    told.document = document(consumers=("billing",))
    asked = told.asked
    shown.page.evaluate("ask()")
    assert told.asked == asked
    shown.page.keyboard.press("Space")
    shown.until("document.querySelectorAll('#consumers article').length === 1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing(open_page: Open, told: Told, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    told.document = document(consumers=("billing", "audit"))
    shown = open_page(told.url, color_scheme=scheme, reduced_motion="reduce")
    shown.load()
    for summary in shown.page.locator("summary").all():
        if summary.locator("..").get_attribute("open") is None:
            summary.click()
    found = Axe().run(shown.page)
    assert found.violations_count == 0, found.generate_report()
    assert len(found.response["passes"]) > 20


def test_dark_is_dark_and_reduced_motion_is_still(open_page: Open, told: Told) -> None:
    told.document = document(consumers=("billing",))
    look = """[getComputedStyle(document.body).backgroundColor,
        getComputedStyle(document.querySelector('.ring path')).transitionDuration]"""
    found = {}
    for scheme, motion in (("light", "no-preference"), ("dark", "reduce")):
        shown = open_page(told.url, color_scheme=scheme, reduced_motion=motion)
        shown.load()
        found[scheme] = shown.page.evaluate(look)
    assert found == {"light": ["rgb(246, 247, 249)", "0.4s"], "dark": ["rgb(20, 23, 27)", "0s"]}


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("spoil", [False, True], ids=["plain", "hostile"])
def test_it_fits_a_phone_and_a_desk(open_page: Open, told: Told, width: int, spoil: bool) -> None:
    told.document = document(view=group_view(64, 9))
    if spoil:
        told.document = hostile(told.document)
    shown = open_page(told.url, viewport={"width": width, "height": 800})
    shown.load()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.page.locator("#consumers article").count() == 12


def test_one_process_may_have_every_slice_of_every_consumer(open_page: Open, told: Told) -> None:
    told.document = document(view=group_view(64, 1))
    assert len(told.document["lanes"]) == 63 * 12
    shown = open_page(told.url)
    shown.load()
    for summary in shown.page.locator("#lanes summary").all():
        if summary.locator("..").get_attribute("open") is None:
            summary.click()
    shown.until("document.querySelectorAll('#lanes tbody tr').length === 756")


@pytest.mark.parametrize("slices", [1, 2, 1024])
def test_a_group_may_have_any_number_of_slices(open_page: Open, told: Told, slices: int) -> None:
    told.document = document(view=group_view(slices, 1), consumers=("billing",), slices=slices)
    shown = open_page(told.url)
    shown.load()
    assert shown.page.locator(".ring .big").text_content().replace(",", "") == str(slices)
    told.document["group"]["members"] = []
    shown.until("document.querySelector('.ring').getAttribute('aria-label').endsWith('nobody holds any')")
