// Runs Lighthouse, phone profile, on one page after another in one Chromium; a line of JSON for each.
// node lighthouse.mjs '{"chromium": PATH, "flags": [...], "categories": [...], "pages": [ADDRESS, ...]}'
import { launch } from "chrome-launcher"
import lighthouse from "lighthouse"

const { chromium, flags, categories, pages } = JSON.parse(process.argv[2])
// Only the performance of a page needs the network to fall silent first.
const atOnce = categories.includes("performance")
  ? {}
  : { disableFullPageScreenshot: true, pauseAfterFcpMs: 0, pauseAfterLoadMs: 0, networkQuietThresholdMs: 0, cpuQuietThresholdMs: 0 }
const chrome = await launch({ chromePath: chromium, chromeFlags: ["--headless=new", ...flags] })
for (const signal of ["SIGTERM", "SIGHUP"]) // the launcher knows SIGINT itself
  process.on(signal, () => { chrome.kill(); process.exit(1) })
try {
  for (const page of pages) {
    const { lhr } = await lighthouse(page, { port: chrome.port, logLevel: "error", onlyCategories: categories, ...atOnce })
    if (lhr.runtimeError) throw new Error(`${page}: ${lhr.runtimeError.message}`)
    const scores = Object.fromEntries(Object.values(lhr.categories).map(({ id, score }) => [id, Math.round(score * 100)]))
    const weighed = Object.values(lhr.categories).flatMap(category => category.auditRefs.filter(audit => audit.weight))
    const failing = [...new Set(weighed.map(audit => audit.id))].map(id => lhr.audits[id]).filter(({ score }) => score !== null && score < 1)
    console.log(JSON.stringify({ page, scores, failing: failing.map(({ id, score, details }) =>
      `${id} (${score}): ${(details?.items ?? []).map(item => item.node?.snippet ?? item.description ?? "").slice(0, 4).join(" ")}`) }))
  }
} finally {
  await chrome.kill()
}
