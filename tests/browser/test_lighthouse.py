"""Lighthouse on the pages as they are published: all that does not depend on the machine's speed is 100."""

from support.browser import JUDGED, lighthouse

CATEGORIES = ("accessibility", "best-practices", "seo")


def test_accessibility_best_practices_and_seo_are_100(published):
    judged = list(lighthouse(published[0], CATEGORIES, JUDGED))
    assert [it["page"] for it in judged] == [published[0] + name for name in JUDGED]
    short = [it for it in judged if it["scores"] != dict.fromkeys(CATEGORIES, 100)]
    assert not short, "\n".join(f"{it['page']} {it['scores']}: {'; '.join(it['failing'])}" for it in short)
