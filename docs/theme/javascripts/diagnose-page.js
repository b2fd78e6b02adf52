/* The box of Diagnose, on its page and on the home page. The log stays in this tab: it goes to a worker made from a Blob, and into the page as text only.
   A text without an error that holds a launch is judged by the lint, which is loaded then. */

(() => {
  "use strict";

  const NativeWorker = window.Worker; // search may replace it later, on file://
  const here = document.currentScript.src;
  const LARGEST = 64 << 20; // of a file, and of what it holds when unpacked
  const PATIENCE = 30_000; // of a diagnosis, in milliseconds
  const STEP = 16 << 10;
  const SCRIPT = 8 << 20; // of a launch
  // What a run prints and a script does not: ranks, times, levels, bars, losses.
  const LOGGED = /^[ \t]*(?:\[(?:rank|default)\d|\[?\d{4}-\d\d-\d\d[ T]\d\d:|\[?(?:INFO|WARNING|ERROR|DEBUG)[\]: |]|\{'(?:loss|train_runtime))|\d%\|/m;

  document.addEventListener("DOMContentLoaded", () => {
    const root = document.querySelector(".ro-diagnose");
    if (!root) return;
    const at = (name) => root.querySelector(`[data-ro="${name}"]`);
    const [input, file, answer, status] = ["log", "file", "answer", "status"].map(at);
    const language = document.documentElement.lang.startsWith("zh") ? "zh" : "en";
    let rules, engine, loaded, worker, address, started, judge, judging, held;
    const say = (key, ...values) => values.reduce((text, value) => text.replace("{}", () => value), rules.words[key][language]);
    const links = new Map([...root.querySelectorAll("[data-ro-to]")].map((link) => [link.dataset.roTo, link.getAttribute("href")]));
    const rows = input.rows;
    let typing = false, round = 0, comment = "", aside = "", busy;

    for (const part of document.querySelectorAll(".ro-diagnose")) part.hidden = false;

    // ---------------------------------------------------------------- asking

    const source = `let rules;
      onmessage = ({ data }) => {
        if (data.rules) {
          rules = engine.load(data.rules);
          for (let turn = 0; turn < data.practice; turn += 1) engine.diagnose(rules, data.text, "", data.language);
          return;
        }
        const told = engine.diagnose(rules, data.log, data.file, data.language);
        postMessage({ round: data.round, told, comment: engine.markdown(rules, told, data.language) });
      };`;
    const judgement = `let rules;
      onmessage = ({ data }) => {
        if (data.rules) rules = data.rules;
        else postMessage({ round: data.round, told: engine.lint(rules, data.text, data.language) });
      };`;
    const script = (name) => new Promise((done, failed) => {
      const made = document.createElement("script");
      made.src = new URL(name, here);
      made.onload = done;
      made.onerror = failed;
      document.head.append(made);
    });

    /** Engine and rules come when somebody turns to the box, once. */
    const start = () => (started ??= Promise.all([script("diagnose.js"), script("rules.js")]).then(() => {
      rules = window.readyonceRules;
      engine = readyonceEngine(rules.matching);
      loaded = engine.load(rules);
      address = URL.createObjectURL(new Blob([`const engine = (${readyonceEngine})(${JSON.stringify(rules.matching)}); ${source}`], { type: "text/javascript" }));
      worker = working();
      // The engine is compiled while nobody waits: on the text of the rules, cut into lines.
      const text = JSON.stringify(rules).replaceAll('"', "\n").repeat(4);
      worker.postMessage({ rules, text, language, practice: location.hash.startsWith("#log=") ? 0 : 6 });
    }).catch((fault) => {
      started = null; // the next one tries again
      throw fault;
    }));
    // Who asks is told when it fails.
    for (const name of ["focusin", "pointerenter", "dragenter"]) root.addEventListener(name, () => start().catch(() => {}));

    function working() {
      const made = new NativeWorker(address);
      made.onmessage = ({ data }) => {
        if (data.round !== round) return;
        const text = launchIn(data.told);
        if (text !== null) {
          judged(data, text);
          return;
        }
        finished(() => show(data.told, data.comment));
      };
      made.onerror = () => {
        if (busy) stopped(root.dataset.failed);
        else started = null; // it did not begin, or not again
      };
      return made;
    }

    function finished(shows) {
      clearTimeout(busy);
      busy = null;
      shows();
      if (aside) {
        answer.prepend(element("p", aside));
        status.textContent = `${status.textContent} ${aside}`.trim();
      }
    }

    /** The text, if it holds no error and a word that launches begin with; else null. */
    function launchIn({ json, note }) {
      if (json.kind !== "unknown" || note || held.log.length > SCRIPT) return null;
      const text = typeof held.log === "string" ? held.log : new TextDecoder().decode(held.log);
      const words = rules.launches.map((word) => word.replace(/[^\w]/g, "\\$&")).join("|");
      return new RegExp(`(?<![\\w.])(?:${words})(?![\\w])`).test(text) && !LOGGED.test(text) ? text : null;
    }

    /** What the lint says, which comes when it is needed, once; and the diagnosis where the text is no launch after all. */
    function judged({ round: mine, told: diagnosis, comment: text }, launch) {
      const other = () => finished(() => show(diagnosis, text));
      judging ??= Promise.all([script("lint.js"), script("lint-rules.js")]).then(() => {
        const parts = [`const engine = (${readyonceLint})(); ${judgement}`];
        return URL.createObjectURL(new Blob(parts, { type: "text/javascript" }));
      });
      judging.then((place) => {
        if (mine !== round) return;
        if (!judge) {
          judge = new NativeWorker(place);
          judge.postMessage({ rules: window.readyonceLintRules });
        }
        judge.onmessage = ({ data }) => {
          if (data.round !== round) return;
          if (data.told.launches || data.told.unreadable) finished(() => showLaunch(data.told, launch));
          else other();
        };
        judge.onerror = () => stopped(root.dataset.failed);
        judge.postMessage({ round: mine, text: launch, language });
      }, other);
    }

    /** Whatever it is at is not wanted any more: a worker cannot be told so. */
    function replaced() {
      clearTimeout(busy);
      busy = null;
      worker.terminate();
      if (judge) judge.terminate();
      judge = null;
      worker = working();
      worker.postMessage({ rules, text: "", language, practice: 0 });
    }

    function stopped(words) {
      replaced();
      refused(words);
    }

    function refused(words) {
      status.textContent = words;
      answer.replaceChildren(element("p", words));
    }

    /** From here on only what is asked now may answer. */
    function begin(typed = false) {
      typing = typed;
      if (busy) replaced();
      answer.replaceChildren();
      status.textContent = root.dataset.reading;
      aside = "";
      return (round += 1);
    }

    function ask(log, name, words = "", typed = false) {
      const mine = begin(typed);
      if (log.length > LARGEST) {
        refused(root.dataset.large);
        return;
      }
      aside = words;
      start().then(() => {
        if (mine !== round) return;
        held = { log, name };
        busy = setTimeout(() => stopped(root.dataset.slow), PATIENCE);
        worker.postMessage({ round, log, file: name, language });
      }).catch(() => mine === round && refused(root.dataset.failed));
    }

    async function askFile(chosen) {
      const mine = begin();
      let log, words = "";
      try {
        if (chosen.size <= LARGEST) log = new Uint8Array(await chosen.arrayBuffer());
        if (log && isPacked(log, 0)) {
          const { parts, broken } = await unpack(log);
          log = parts && new Uint8Array(await new Blob(parts).arrayBuffer());
          if (broken) words = log?.length ? root.dataset.cut : root.dataset.unreadable;
        }
      } catch {
        words = root.dataset.unreadable;
      }
      if (mine !== round) return; // something else was asked in between
      if (log && (log.length || !words)) {
        const wide = log[0] === 0xff && log[1] === 0xfe ? "utf-16le" : log[0] === 0xfe && log[1] === 0xff ? "utf-16be" : null;
        ask(wide ? new TextDecoder(wide).decode(log) : log, chosen.name, words);
      } else refused(words || root.dataset.large);
    }

    const isPacked = (data, at) => data[at] === 0x1f && data[at + 1] === 0x8b;

    /** What a .gz holds, all of its members, as far as it can be read; no `parts` where that is too much. */
    async function unpack(packed) {
      const parts = [];
      let size = 0, got;

      /** Reads the member at `start`, byte by byte from `fine` on; returns how far it went, and whether to its end. */
      async function member(start, fine) {
        const { readable, writable } = new DecompressionStream("gzip");
        const reader = readable.getReader(), writer = writable.getWriter();
        let at = start, passed = 0;
        const reading = (async () => {
          for (let next; size <= LARGEST && !(next = await reader.read()).done; passed += next.value.length) {
            const fresh = next.value.subarray(Math.min(next.value.length, Math.max(0, got - passed)));
            got += fresh.length;
            size += fresh.length;
            parts.push(fresh);
          }
          if (size > LARGEST) await reader.cancel();
        })();
        reading.catch(() => {}); // told by the writer too
        try {
          for (let step; at < packed.length; at += step) {
            step = Math.min(at < fine ? STEP : 1, packed.length - at);
            await writer.write(packed.subarray(at, at + step));
          }
          await Promise.all([writer.close(), reading]);
          return [at, true];
        } catch {
          return [at, false];
        }
      }

      for (let start = 0; ; ) {
        got = 0;
        let [end, whole] = await member(start, Infinity);
        // A stream drops what it held when it fails, so what came right before is read again, in small steps.
        if (!whole && end < packed.length && size <= LARGEST) [end, whole] = await member(start, end);
        if (size > LARGEST) return { parts: null, broken: false };
        if (whole) return { parts, broken: false };
        if (end === start || !isPacked(packed, end)) return { parts, broken: packed.subarray(end).some(Boolean) || end === packed.length };
        start = end;
      }
    }

    // A paste goes to the worker as it is: 20 MB in a text field would freeze the page.
    input.addEventListener("paste", (event) => {
      const text = event.clipboardData.getData("text/plain");
      if (text.length > 200000) {
        event.preventDefault();
        input.value = `${text.slice(0, 2000)}\n…`;
        ask(text, "paste");
      }
    });
    let waiting, length = 0;
    input.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        const typed = Math.abs(input.value.length - length) < 20; // letter by letter: the cursor stays where it is
        length = input.value.length;
        ask(input.value, "paste", "", typed);
      }, 150);
    });
    at("example").addEventListener("click", () => {
      input.value = root.querySelector("[hidden] pre code").textContent;
      ask(input.value, "paste");
    });
    file.addEventListener("change", () => file.files.length && askFile(file.files[0]));
    for (const name of ["dragover", "drop"]) {
      root.addEventListener(name, (event) => {
        event.preventDefault();
        root.classList.toggle("ro-over", name === "dragover");
        if (name === "drop" && event.dataTransfer.files.length) askFile(event.dataTransfer.files[0]);
      });
    }
    root.addEventListener("dragleave", () => root.classList.remove("ro-over"));

    // What a link brings stands behind the #, which no browser sends.
    const brought = () => {
      if (!location.hash.startsWith("#log=")) return;
      let log = location.hash.slice(5);
      try {
        log = decodeURIComponent(log);
      } catch {} // a link that was cut: as it is
      input.value = log;
      ask(log, "paste");
    };
    window.addEventListener("hashchange", brought);
    brought();

    // ---------------------------------------------------------------- showing

    function element(name, content, className) {
      const made = document.createElement(name);
      if (className) made.className = className;
      // Words of our own may hold `code`; a log never comes through here.
      if (typeof content === "string") {
        content.split("`").forEach((part, index) => {
          if (index % 2) made.appendChild(document.createElement("code")).textContent = part;
          else made.append(part);
        });
      } else if (content) made.append(...content);
      return made;
    }

    function linked(words, to, hash = "", below = "") {
      const link = element("a", words), place = links.get(to);
      // From a folder an address ends in the file's name.
      link.href = (below ? place.replace(/(index\.html)?$/, `${below}$1`) : place) + hash;
      return link;
    }

    /** The answer first: what it is, what to do, which case; then what it was read from. */
    function show(told, text) {
      const { kind, error, line, incidents, words_of: wordsOf, also, look, fix, exception, silent } = told.json;
      const family = error && loaded.families.get(error), { note } = told;
      comment = text;
      answer.replaceChildren();
      if (note === "empty" && told.json.file === "paste") {
        status.textContent = "";
        input.rows = rows;
        return;
      }
      const title = (name) => loaded.families.get(name).title;
      const key = kind === "wrapper-only" ? "wrapper" : note || (kind === "fragment" ? kind : "not-known");
      const names = wordsOf.map((name) => `\`${title(name).replaceAll("`", "")}\``).join(say("or"));
      const heading = element("h2", family ? [linked(family.title, error)] : say(key, names), `ro-verdict ro-kind-${kind}`);
      heading.tabIndex = -1;
      status.textContent = family ? `${family.title} · ${say("at-line", line)}` : heading.textContent;
      answer.append(heading);
      if (kind === "wrapper-only") {
        answer.append(element("p", say("wrapper-up", told.rank === null ? "" : say("wrapper-rank", told.rank))), element("p", say("wrapper-file")));
      } else if (!family) {
        if (exception) answer.append(element("pre", [coded(exception.text)]));
        answer.append(element("p", say(`${key}-next`, exception?.next ?? "")));
        if (key === "not-known") answer.append(element("ul", rules.doors.map(({ text, page }) => {
          const [name, anchor] = page.split("#");
          return element("li", [linked(text[language], name, `#${anchor}`)]);
        })));
        if (silent.length) answer.append(element("ul", silent.map(({ line, text, page }) => {
          const [name, anchor] = page.split("#");
          return element("li", [element("span", text), say("brackets", say("at-line", line)), say("colon"), linked(say("more"), name, `#${anchor}`)]);
        })));
        if (wordsOf.length) answer.append(element("ul", wordsOf.map((name) => element("li", [linked(title(name), name)]))));
        if (look.length) answer.append(element("ul", look.map(({ id, line, why }) => {
          const { short } = rules.incidents.find((one) => one.id === id);
          return element("li", [linked(`${id} · ${short[language]}`, id), say("brackets", say("at-line", line)), say("colon"), element("span", why)]);
        })));
        if (["not-known", "look", "silent"].includes(key) && links.has("guard")) answer.append(element("p", [linked(say("doubt"), "guard")]));
        if (note === "not-covered") answer.append(element("p", [linked(say("all-errors"), "errors")]));
      } else {
        if (kind === "look-alike" && !incidents.length) answer.append(element("p", say("look-alike"), "ro-small"));
        answer.append(element("p", engine.adviceOf(say, family, language)));
        if (!fix) answer.append(element("p", [linked(say("steps"), error)]));
      }
      if (fix) showFix(fix);
      if (kind === "known" && incidents.length) answer.append(element("p", [linked(say("cases"), error, "#cases")]));
      if (incidents.length) answer.append(element("p", [element("strong", say("incidents"))]));
      if (incidents.length) answer.append(element("ol", incidents.map(({ id, why }) => {
        const { short } = rules.incidents.find((one) => one.id === id);
        return element("li", [linked(`${id} · ${short[language]}`, id), say("colon"), element("span", why.join(say("semicolon")) || say("nothing"), "ro-small")]);
      })));
      if (also.length) {
        answer.append(element("p", [element("strong", say("also-known"))]));
        answer.append(element("ul", also.map(({ name, line }) => element("li", [linked(title(name), name), say("brackets", say("at-line", line))]))));
      }
      if (told.around.length) answer.append(surroundings(told, note === "not-covered"));
      if (kind === "unknown" && rules.issue && (!note || note === "not-covered")) {
        const winning = (told.around.find(([number]) => number === told.line) || [0, ""])[1].trim();
        const form = element("a", root.dataset.send);
        const line = encodeURIComponent(Array.from(winning).slice(0, 200).join("").replace(/\p{Cs}/gu, "\ufffd"));
        form.href = rules.issue.replace("{}", () => line);
        answer.append(element("p", [form]));
      }
      if (note === "empty" || note === "binary") return;
      const copy = element("button", root.dataset.copy, "md-button");
      copy.type = "button";
      copy.addEventListener("click", () => copied(copy));
      answer.append(element("p", [copy]), element("p", say("footer"), "ro-small"));
      turn(heading);
    }

    function turn(heading) {
      if (typing) return;
      input.rows = 3; // the answer is what is wanted now
      heading.focus({ preventScroll: true });
      heading.scrollIntoView();
    }

    /** Each finding: what will happen, where, what to add or to replace. Beside findings that are sure, notes are folded. */
    function showLaunch({ findings, several, unreadable, line }, text) {
      const { words } = window.readyonceLintRules;
      const tell = (key, ...values) => values.reduce((said, value) => said.replace("{}", () => value), words[key][language]);
      answer.replaceChildren();
      const levels = ["error", "warning", "note", "not-covered"].map((level) => [level, findings.filter((it) => it.level === level)]);
      const counted = levels.filter(([, all]) => all.length).map(([level, { length }]) => tell(`of-${level}${length === 1 ? "" : "s"}`, length));
      const summary = counted.join(tell("of-next")) || tell(several ? "of-right" : "single");
      const heading = element("h2", unreadable ? tell("unreadable", line, unreadable) : tell("launches", summary), "ro-verdict ro-kind-launch");
      heading.tabIndex = -1;
      status.textContent = heading.textContent;
      answer.append(heading);
      const rows = text.split("\n");
      const finding = (it) => {
        const what = it.versions ? tell("of-with", it.versions, it.what) : it.what;
        // What is not covered says so itself.
        const level = it.level === "not-covered" ? [] : [element("strong", tell(`level-${it.level}`)), tell("colon")];
        const whole = (rows[it.line - 1] || "").trim();
        const row = coded(it.option ?? (whole.length > 120 ? `${whole.slice(0, 120).replace(/\S+$/, "")}…` : whole));
        const made = [
          element("p", [...level, element("span", what)]),
          element("p", [tell(it.option === null ? "command" : "option", it.line), tell("colon"), row], "ro-small"),
        ];
        if (it.fix) made.push(element("p", tell(`of-${it.change === "replace" ? "replace" : it.option === null ? "add" : "keep"}`)), plain(it.fix));
        const to = addressOf(it);
        if (to) made.push(element("p", [linked(tell("page"), ...to)]));
        return element("div", made, `ro-finding ro-level-${it.level}`);
      };
      const notes = findings.filter(({ level }) => level === "note");
      answer.append(...findings.filter(({ level }) => level !== "note").map(finding));
      if (notes.length) {
        const guard = links.has("guard") ? [element("p", [linked(tell("of-guard"), "guard")])] : [];
        if (links.has("guard-compare") && notes.some(({ wrong }) => wrong)) guard.push(element("p", [linked(tell("of-compare"), "guard-compare")]));
        const fold = element("details", [element("summary", tell("folded", notes.length)), ...notes.map(finding), ...guard], "ro-fold");
        fold.open = notes.length === findings.length; // they are all that there is to say
        answer.append(fold);
      }
      if (several && !notes.length && links.has("guard") && links.has("guard-compare")) {
        const command = (key) => tell(key).trim().split(/\s{2,}/).join(tell("colon"));
        answer.append(element("p", tell("of-unknown")), element("ul", [
          element("li", [linked(command("of-run-guard"), "guard")]),
          element("li", [linked(command("of-run-compare"), "guard-compare")]),
        ]));
      }
      if (findings.some(({ versions }) => versions)) answer.append(element("p", tell("versions-not-known")));
      answer.append(element("p", tell("alone"), "ro-small"));
      turn(heading);
    }

    /** Where a finding's page lies: an error's, the table's, or a run's in the evidence of an incident. */
    function addressOf({ code, page }) {
      const [path, hash] = page.split("#"), [, id] = /^incidents\/([^/]+)\//.exec(path) || [];
      if (id && links.has(id)) return hash ? [id, `#${hash}`, "evidence/"] : [id];
      if (path === "decision/" && links.has("decision")) return ["decision", hash ? `#${hash}` : ""];
      return links.has(code) ? [code] : null;
    }

    function showFix(fix) {
      const first = fix.incident === null ? say("fix") : say("first") + say("brackets", fix.incident);
      answer.append(element("p", [element("strong", first), say("colon"), element("span", fix.text)]));
      let to = answer;
      for (const [form, whole] of engine.formsOf(fix)) {
        if (!whole && to === answer) to = answer.appendChild(element("details", [element("summary", say("stacks"))], "ro-fold"));
        if (fix.incident === null) to.append(element("p", [element("strong", engine.headOf(rules, say, form, fix, language))]));
        if (form.code) to.append(plain(form.code));
        if (form.text && (whole || !form.code)) to.append(element("p", form.text));
      }
      if (fix.questions.length) answer.append(element("ol", fix.questions.map((question) => element("li", question))));
    }

    /** Words of a log or code: as text only. */
    function coded(text) {
      const code = element("code");
      code.textContent = text;
      return code;
    }

    function plain(text) {
      const copy = element("button", "", "ro-take");
      copy.type = "button";
      copy.title = root.dataset.take;
      copy.dataset.clipboardText = text; // the theme copies it, and says so
      return element("pre", [copy, coded(text)]);
    }

    function surroundings(told, open) {
      const code = element("code");
      for (const [number, text] of told.around) {
        const row = document.createElement(number === told.line ? "mark" : "span");
        row.textContent = `${String(number).padStart(6)}  ${text.replace(/\x1b\[[0-9;]*m/g, "").slice(0, 600)}\n`;
        code.append(row);
      }
      const box = element("pre", [code], "ro-around");
      box.tabIndex = 0;
      const fold = element("details", [element("summary", root.dataset.quoted), box], "ro-fold");
      fold.open = open;
      return fold;
    }

    async function copied(button) {
      try {
        await navigator.clipboard.writeText(comment);
      } catch {
        // From a local folder a browser may not give its clipboard.
        const field = document.createElement("textarea");
        field.value = comment;
        document.body.append(field);
        field.select();
        document.execCommand("copy");
        field.remove();
        button.focus();
      }
      button.textContent = root.dataset.copied;
    }

    // Nothing that a link to this page can bring: such an address is decoded before it runs, on whatever page that is.
    const page = JSON.stringify(`${location.protocol}//${location.host}${location.pathname}#log=`).replaceAll("%", "%25");
    const bookmarklet = document.querySelector('[data-ro="bookmarklet"]');
    if (!bookmarklet) return; // the box on another page
    bookmarklet.href = `javascript:void open(${page}+encodeURIComponent(String(getSelection()).slice(0,500000)))`;
    bookmarklet.addEventListener("click", (event) => event.preventDefault());
  });
})();
