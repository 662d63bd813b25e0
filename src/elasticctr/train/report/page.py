"""The page around a report: markup and style, readable in light and dark, on paper and on a phone."""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>$title · ElasticCTR</title>
<style>
:root { color-scheme: light dark; --ink: #22262c; --soft: #5d6570; --line: #dfe3e8; --paper: #ffffff; --card: #f5f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ed; --soft: #9aa4b0; --line: #343b44; --paper: #15191e; --card: #1e242b; }
}
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.4rem 0 .7rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
p { margin: .5rem 0; color: var(--soft); }
p.warning { color: var(--ink); background: var(--card); border-left: 4px solid #d97706; padding: .6rem .9rem; }
p b { color: var(--ink); }
.cards { display: flex; flex-wrap: wrap; gap: .7rem; margin-top: .8rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .6rem 1rem;
  min-width: 5.5rem; }
.card b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: .85rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .28rem .9rem .28rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child, .facts td { text-align: left; }
.facts td { white-space: normal; overflow-wrap: anywhere; }
figure { display: inline-block; vertical-align: top; margin: .4rem .6rem .9rem 0; width: min(100%, 29.5rem); }
figure img { width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 8px; }
figcaption { color: var(--soft); font-size: .85rem; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; overflow-x: auto;
  font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; }
@media print { section { break-inside: avoid; } }
</style>
</head>
<body>
<h1>$title</h1>
<p>$subtitle</p>
$headlines
$sections
</body>
</html>
"""
