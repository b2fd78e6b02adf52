"""What a page adds to the theme's own files, as it travels: at most 32 kB, packed with gzip.

The engine of Diagnose and its rules are not among it: they come when somebody turns to the box. Nor is what helps the
search, which comes with the theme's script. A page that shows an incident's files whole may have 40 kB."""

import gzip
import re

from readyonce.publish import postprocess

MOST, OF_FILES = 32_000, 40_000
OWN = re.compile(r'<(?:script|link|img|object)\b[^>]*?\b(?:src|href|data)="([^"#?:]+\.(?:js|css|svg|png|webp))"')


def packed(text: bytes) -> int:
    return len(gzip.compress(text, 9, mtime=0))


def test_no_page_is_heavy(built):
    weights = {}
    for path in built.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        # The page for what is not found has its addresses from the top.
        with_it = {(built / it[1:] if it[0] == "/" else path.parent / it).resolve() for it in OWN.findall(html)}
        own = sum(packed(it.read_bytes()) for it in with_it if "assets" not in it.parts)
        weights[path.relative_to(built).as_posix()] = packed(html.encode()) + own
    most = {name: OF_FILES if name.endswith("/files/index.html") else MOST for name in weights}
    heavy = sorted((weight, name) for name, weight in weights.items() if weight > most[name])
    assert len(weights) > 50 and not heavy, f"bytes, gzip: {heavy[::-1]}"


def test_only_white_space_that_nobody_sees_is_taken_out():
    kept = "<pre>a  b\n\n c</pre><code>two  spaces</code><textarea>\n  x</textarea><script>let a = `1  2`</script>"
    assert postprocess.page(f"<p>  52\u00a0%\n\n   {kept}  </p>") == f"<p> 52\u00a0%\n{kept} </p>"


def test_each_table_has_its_box_and_is_known_by_its_class():
    boxed = '<div class="md-typeset__scrollwrap"><div class="md-typeset__table"><table class="ro-table">%s</table></div></div>'
    own = '<table class="highlighttable">1</table>'
    assert postprocess.page(f"<table>1</table>{own}<table>2</table>") == boxed % 1 + own + boxed % 2


def test_of_styles_and_scripts_only_comments_and_white_space_are_taken_out():
    assert postprocess.style("/* a\n b */\na:hover, b {\n  c: d e; /* f */\n}\n") == "a:hover,b{c:d e;}"
    code = "/* a\n   b */\n// c\n{\n  const d = 'https://e' // f\n\n  /** g */\n  // h\n  i(/* j */ d)\n}\n"
    assert postprocess.script(code) == "{\nconst d = 'https://e' // f\ni(/* j */ d)\n}\n"
