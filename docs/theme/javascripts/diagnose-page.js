/* The page Diagnose. The log stays in this tab: it goes to a worker made from a Blob, and into the page as text only. */

(() => {
  "use strict";

  const NativeWorker = window.Worker; // search may replace it later, on file://
  const LARGEST = 64 << 20;

  document.addEventListener("DOMContentLoaded", () => {
    const root = document.querySelector(".ro-diagnose");
    if (!root) return;
    const at = (name) => root.querySelector(`[data-ro="${name}"]`);
    const [input, file, answer, status] = ["log", "file", "answer", "status"].map(at);
    const language = document.documentElement.lang.startsWith("zh") ? "zh" : "en";
    const rules = window.readyonceRules, engine = readyonceEngine(), loaded = engine.load(rules);
    const say = (key, ...values) => values.reduce((text, value) => text.replace("{}", () => value), rules.words[key][language]);
    const links = new Map([...root.querySelectorAll("[data-ro-to]")].map((link) => [link.dataset.roTo, link.getAttribute("href")]));
    let round = 0, comment = "";

    root.hidden = false;

    // ---------------------------------------------------------------- asking

    const source = `const engine = (${readyonceEngine})(); let rules;
      onmessage = ({ data }) => {
        if (data.rules) {
          rules = engine.load(data.rules);
          for (let turn = 0; turn < data.practice; turn += 1) engine.diagnose(rules, data.text, "", data.language);
          return;
        }
        const told = engine.diagnose(rules, data.log, data.file, data.language);
        postMessage({ round: data.round, told, comment: engine.markdown(rules, told, data.language) });
      };`;
    const worker = new NativeWorker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    // The engine is compiled while nobody waits: on the text of the rules, cut into lines.
    const text = JSON.stringify(rules).replaceAll('"', "\n").repeat(4);
    worker.postMessage({ rules, text, language, practice: location.hash.startsWith("#log=") ? 0 : 6 });
    worker.onmessage = ({ data }) => {
      if (data.round === round) show(data.told, data.comment);
    };

    function ask(log, name) {
      round += 1;
      answer.replaceChildren();
      status.textContent = root.dataset.reading;
      worker.postMessage({ round, log, file: name, language });
    }

    async function askFile(chosen) {
      if (chosen.size > LARGEST) {
        status.textContent = root.dataset.large;
        return;
      }
      let log = new Uint8Array(await chosen.arrayBuffer());
      if (log[0] === 0x1f && log[1] === 0x8b) {
        const plain = new Blob([log]).stream().pipeThrough(new DecompressionStream("gzip"));
        log = new Uint8Array(await new Response(plain).arrayBuffer());
      }
      const wide = log[0] === 0xff && log[1] === 0xfe ? "utf-16le" : log[0] === 0xfe && log[1] === 0xff ? "utf-16be" : null;
      ask(wide ? new TextDecoder(wide).decode(log) : log, chosen.name);
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
    let waiting;
    input.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => ask(input.value, "paste"), 150);
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

    const page = location.href.replace(/#.*/, "");
    at("bookmarklet").href = `javascript:void open(${JSON.stringify(`${page}#log=`)}+encodeURIComponent(String(getSelection()).slice(0,500000)))`;
    at("bookmarklet").addEventListener("click", (event) => event.preventDefault());

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

    function linked(words, to, hash = "") {
      const link = element("a", words);
      link.href = links.get(to) + hash;
      return link;
    }

    function show(told, text) {
      const { kind, error, line, incidents } = told.json;
      const family = error && loaded.families.get(error);
      comment = text;
      answer.replaceChildren();
      if (kind === "unknown" && told.note === "empty") {
        status.textContent = "";
        return;
      }
      const title = kind === "wrapper-only" ? say("wrapper") : kind === "unknown" ? say(told.note || "not-known") : family.title;
      status.textContent = line && family ? `${title} · ${say("at-line", line)}` : title;
      answer.append(element("p", kind === "unknown" || kind === "wrapper-only" ? title : [element("strong", [linked(family.title, error)])], `ro-verdict ro-kind-${kind}`));
      if (kind === "wrapper-only") {
        answer.append(element("p", say("wrapper-up", told.rank === null ? "" : say("wrapper-rank", told.rank))), element("p", say("wrapper-file")));
      } else if (kind === "unknown") {
        answer.append(element("p", say("keep")));
      } else {
        if (kind === "look-alike") answer.append(element("p", say("look-alike"), "ro-small"));
        answer.append(element("p", family.text[language]));
      }
      if (told.around.length) answer.append(surroundings(told));
      if (incidents.length) {
        answer.append(element("p", [element("strong", say("incidents"))]));
        const list = answer.appendChild(element("ol"));
        for (const { id, why } of incidents) {
          const incident = rules.incidents.find((one) => one.id === id);
          const item = list.appendChild(element("li", [linked(`${id} · ${incident.short[language]}`, id)]));
          item.append(element("br"), element("span", why.join(say("semicolon")) || say("nothing"), "ro-small"));
        }
      }
      if (told.json.fix) showFix(told.json.fix);
      if (incidents.length) {
        answer.append(element("p", [linked(say("cases"), error, "#cases")]));
      }
      if (kind === "unknown" && rules.repo) {
        const winning = (told.around.find(([number]) => number === told.line) || [0, ""])[1].trim().slice(0, 200);
        const form = element("a", root.dataset.send);
        form.href = `${rules.repo}/issues/new?template=unknown-error.yml&error=${encodeURIComponent(winning)}`;
        answer.append(element("p", [form]));
      }
      const copy = element("button", root.dataset.copy, "md-button");
      copy.type = "button";
      copy.addEventListener("click", () => copied(copy));
      answer.append(element("p", [copy]), element("p", say("footer"), "ro-small"));
    }

    function showFix(fix) {
      const first = fix.incident === null ? say("fix") : say("first") + say("brackets", fix.incident);
      answer.append(element("p", [element("strong", first), element("br"), element("span", fix.text)]));
      let to = answer;
      for (const [form, whole] of engine.formsOf(fix)) {
        if (!whole && to === answer) to = answer.appendChild(element("details", [element("summary", say("stacks"))]));
        if (fix.incident === null) to.append(element("p", [element("strong", engine.headOf(rules, say, form, fix, language))]));
        if (form.code) to.append(plain(form.code));
        if (form.text && (whole || !form.code)) to.append(element("p", form.text));
      }
      if (fix.questions.length) answer.append(element("ol", fix.questions.map((question) => element("li", question))));
    }

    function plain(text) {
      const code = element("code");
      code.textContent = text;
      return element("pre", [code]);
    }

    function surroundings(told) {
      const code = element("code");
      for (const [number, text] of told.around) {
        const row = document.createElement(number === told.line ? "mark" : "span");
        row.textContent = `${String(number).padStart(6)}  ${text.replace(/\x1b\[[0-9;]*m/g, "").slice(0, 600)}\n`;
        code.append(row);
      }
      const box = element("pre", [code], "ro-around");
      box.tabIndex = 0;
      return box;
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
  });
})();
