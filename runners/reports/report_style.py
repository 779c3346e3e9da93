"""How a report looks: readable on a phone, in the dark and by keyboard, beside whatever else a notebook shows."""

from __future__ import annotations

PHASES = {
    "plan": ("planning", "#7a6ff0"),
    "read": ("reading", "#2f86d1"),
    "write": ("writing", "#1f9d6b"),
    "dlq": ("refused rows", "#d1652f"),
    "ledger": ("ledger", "#9a8a2f"),
    "rest": ("resting", "#8a8f98"),
}
"""What time is spent on: in words, and its colour."""

STYLE = """
.wherry{color-scheme:light dark;--ink:#1c1e21;--paper:#fff;--dim:#5c6470;--line:#d5d9df;--box:#f4f6f8;--good:#1f7a4d;
--bad:#b3261e;--none:#6b7280;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:64rem;margin:0 auto;padding:1rem;box-sizing:border-box}
@media(prefers-color-scheme:dark){.wherry{--ink:#e6e8eb;--paper:#15171a;--dim:#9aa3af;--line:#343a42;--box:#1e2227;
--good:#5ccf95;--bad:#ff8a80;--none:#a3aab5}html:has(>body>main.wherry){background:#15171a}}
body:has(>main.wherry){margin:0}
.wherry h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0;overflow-wrap:anywhere}
.wherry h2{font-size:1.1rem;margin:2rem 0 .6rem}
.wherry p{margin:.5rem 0;overflow-wrap:anywhere}
.wherry .succeeded{color:var(--good)}.wherry .failed,.wherry .killed{color:var(--bad)}.wherry .dim{color:var(--dim)}
.wherry a{color:inherit}
.wherry .wide{overflow-x:auto}
.wherry table{border-collapse:collapse;width:100%;font-size:.95rem}
.wherry th,.wherry td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);
vertical-align:top;background:none;color:inherit}
.wherry th{color:var(--dim);font-weight:600;white-space:nowrap}
.wherry td{max-width:32rem;overflow-wrap:break-word}
.wherry td.n,.wherry th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.wherry pre{overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;border-left:3px solid var(--line);
padding:.1rem 0 .1rem .8rem;margin:.5rem 0;background:none;color:inherit;font:14px/1.45 ui-monospace,monospace}
.wherry pre.failed{border-color:var(--bad)}
.wherry summary{cursor:pointer;padding:.4rem 0}
.wherry .flow{display:flex;align-items:stretch;gap:.5rem}
.wherry .flow>div{flex:1;display:flex;flex-direction:column;justify-content:center;gap:.5rem;min-width:0}
.wherry .flow>.to{flex:none;color:var(--dim);font-size:1.3rem}
.wherry .box{background:var(--box);border:1px solid var(--line);border-left:4px solid var(--none);border-radius:6px;
padding:.5rem .7rem;overflow-wrap:anywhere}
.wherry .box b{display:block;font-size:1.15rem;font-variant-numeric:tabular-nums}
.wherry .box.good{border-left-color:var(--good)}.wherry .box.bad{border-left-color:var(--bad)}
.wherry .bar{display:flex;height:1.2rem;border-radius:3px;overflow:hidden;background:var(--line)}
.wherry .key{display:inline-block;margin-right:1rem;white-space:nowrap}
.wherry .key i{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.35rem}
.wherry .lane{display:grid;grid-template-columns:minmax(4rem,9rem) 1fr;gap:.6rem;align-items:center;margin:.25rem 0}
.wherry .lane>span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;font-size:.9rem}
.wherry .track{position:relative;height:1.1rem;background:var(--box);border-radius:3px;overflow:hidden}
.wherry .track>span{position:absolute;top:0;bottom:0;display:flex;min-width:2px}
.wherry .ends{display:flex;justify-content:space-between;color:var(--dim);font-size:.85rem}
.wherry :focus-visible{outline:2px solid currentColor;outline-offset:2px}
@media(max-width:40rem){.wherry .flow{flex-direction:column}.wherry .flow>.to{text-align:center;line-height:1}
.wherry .flow>.to span{display:inline-block;transform:rotate(90deg)}.wherry{padding:.8rem}
.wherry .lane{grid-template-columns:5rem 1fr}}
"""
