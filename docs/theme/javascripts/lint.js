/* The lint for a browser: scripts/readyonce/lint (shell.py, launch.py, judge.py) once more, for one pasted text. Pure functions,
   no page, no network; what the text names is not followed. One function holds everything, so that its own text can be handed
   to a worker. Tests hold both engines equal. */

// biome-ignore lint/correctness/noUnusedVariables: diagnose-page.js calls it
function readyonceLint() {
  "use strict";

  // ---------------------------------------------------------------- shell.py

  const SIZE = 8 << 20, GROWTH = 1 << 20, COPIED = 64 << 20, DEPTH = 8;
  const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"; // of Python
  const LETTER = "\\p{L}\\p{N}_";
  const sticky = (source, flags = "") => new RegExp(source, `y${flags}`);
  const NAME = sticky(`[A-Za-z_][${LETTER}]*`, "u");
  const ONLY_NAME = new RegExp(`^[A-Za-z_][${LETTER}]*$`, "u");
  const ASSIGNED = sticky(`([A-Za-z_][${LETTER}]*)(\\+?=)`, "u");
  const NUMBERED = sticky("\\p{Nd}+[<>]", "u");
  const REDIRECTION = sticky("&?\\p{Nd}*(<<-?|[<>]{1,3}&?|>\\|)[ \\t]*", "u");
  const PLACEHOLDER = sticky(`<[A-Za-z_][${LETTER}./-]*>`, "u"); // `<your_path>` of a manual, and no redirection
  const SPECIAL = sticky("[\\p{Nd}#?$!-]", "u");
  const PARAMETER = new RegExp(`^(@|\\*|[A-Za-z_][${LETTER}]*)(\\[[@*]\\])?(?:(:?[-=+?])([^]*))?\\n?$`, "u");
  const QUOTED_END = /["\\$`]/g;
  const PLAIN_END = new RegExp(`[${SPACE};&|<>()\\\\'"$\`]`, "g");
  const BRACKETS = /\\[^]|'[^']*'|[(){}]/g;
  const ONE_SPACE = new RegExp(`^[${SPACE}]`);
  const SPACES = new RegExp(`[${SPACE}]+`);
  const OUTER = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "g");
  const ENDS = " \t\n;&|<>()";
  const OPENING = new Set(["if", "for", "while", "until", "case", "select", "function"]);
  const CLOSING = new Set(["fi", "done", "esac"]);
  const KEYWORDS = new Set([...OPENING, ...CLOSING, "then", "else", "elif", "do", "{", "}", "!", "time", "in"]);
  const DECLARING = new Set(["export", "declare", "local", "readonly", "typeset"]);
  const ALL = new Set(["$@", "${@}", "$*"]);
  const INNER = new Set(["bash", "sh", "zsh", "dash", "ksh"]), SCRIPT = /^-[A-Za-z]*c[A-Za-z]*$/; // `bash -lc`
  // That start nothing, whatever their words are.
  const SPEAKING = new Set("echo printf cat grep which type alias pip git sed set : ps kill pkill pgrep".split(" "));
  // In a variable's value: what follows, up to white space, only a run can tell. Its own white space is hidden.
  const MARK = "\0", HIDDEN = "\x01", EACH_SPACE = new RegExp(`[${SPACE}]`, "g");
  const marked = (raw) => MARK + raw.replace(EACH_SPACE, HIDDEN);
  const shown = (text) => text.replaceAll(MARK, "").replaceAll(HIDDEN, " ");

  class Unreadable extends Error {
    /** Why, as a key of the words and what stands in them, and in which line. */
    constructor(key, line = 1, ...values) {
      super(key);
      Object.assign(this, { key, line, values });
    }
  }

  const matched = (pattern, text, at) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  const search = (pattern, text, at) => {
    const match = matched(pattern, text, at);
    return match ? match.index : text.length;
  };
  const words = (text) => text.split(SPACES).filter(Boolean);
  const strip = (text) => {
    let end = text.length, start = 0;
    while (end && ONE_SPACE.test(text[end - 1])) end -= 1;
    while (start < end && ONE_SPACE.test(text[start])) start += 1;
    return text.slice(start, end);
  };
  const lines = (text, start, end) => {
    let count = 0;
    for (let at = text.indexOf("\n", start); at >= 0 && at < end; at = text.indexOf("\n", at + 1)) count += 1;
    return count;
  };
  const same = (one, other) =>
    one === other || (one && other && one.length === other.length && one.every((it, index) => it === other[index]));

  /** All simple commands in the order in which they stand; `asked` are the variables that one may ask for. */
  function commands(text, asked) {
    if (text.length > SIZE) throw new Unreadable("long", 1, SIZE >> 20);
    const state = { variables: new Map(), exported: new Set(), depth: 0, grown: 0, copied: 0 };
    return read(text.replaceAll("\r\n", "\n"), 1, state, 0, asked);
  }

  function read(text, line, state, depth, asked) {
    const found = [], reader = new Reader(text, line, state, 0);
    for (let command; (command = reader.command()); ) {
      let [own, assigned] = command;
      assign(state, assigned, false, own.length > 0);
      while (own.length && KEYWORDS.has(own[0].text) && own[0].known) {
        state.depth += OPENING.has(own[0].text) - CLOSING.has(own[0].text);
        if ((own[0].text === "for" || own[0].text === "select") && own.length > 1) {
          state.variables.set(own[1].text, null);
          own = [];
          break;
        }
        own = own.slice(1);
      }
      if (!own.length) continue;
      const name = own[0].text;
      if (DECLARING.has(name)) {
        assign(state, own.slice(1).map(assignmentOf).filter(Boolean), name === "export");
        if (name === "export") for (const word of own.slice(1)) if (ONLY_NAME.test(word.text)) state.exported.add(word.text);
        continue;
      }
      if (name === "eval" && depth < DEPTH) {
        // What is not known stands as it is written, and is as little known when it is read again.
        const inner = own.slice(1).map((word) => word.text).join(" ");
        for (const it of read(inner, own[0].line, state, depth + 1, asked)) found.push(it);
        continue;
      }
      // `env NAME=value`, `docker run -e NAME=value`: told to what stands behind it.
      for (const it of own.slice(1).map(assignmentOf)) if (it) assigned.push(it);
      const inner = !SPEAKING.has(name) && depth < DEPTH && innerOf(own);
      if (inner) {
        const started = child(state, assigned);
        for (const it of read(inner.text, inner.line, started, depth + 1, asked)) found.push(it);
        state.grown = started.grown;
        state.copied = started.copied;
        continue;
      }
      const environment = new Map();
      for (const key of asked) if (state.exported.has(key)) environment.set(key, one(state.variables.get(key)));
      for (const [key, values] of assigned) environment.set(key, one(values));
      found.push({ words: own, environment });
    }
    return found;
  }

  /** The script behind `bash -c`, whatever starts that shell: srun, docker, nohup. */
  function innerOf(own) {
    const first = own.findIndex(({ text }) => INNER.has(base(text)));
    if (first < 0) return null;
    for (let at = first + 1; at + 1 < own.length && own[at].text.startsWith("-"); at += 1) {
      if (SCRIPT.test(own[at].text)) return own[at + 1];
      if (own[at].text.endsWith("o")) at += 1; // -o pipefail
    }
    return null;
  }

  function copies(state, letters) {
    state.copied += letters;
    if (state.copied > COPIED) throw new Unreadable("grown", 1, GROWTH >> 20);
  }

  /** What a shell that is started knows: what is exported. All else that the script sets is not known there. */
  function child(state, assigned) {
    const handed = [...state.variables].filter(([name, it]) => it && state.exported.has(name));
    copies(state, 16 * (state.variables.size + state.exported.size + handed.reduce((sum, [, it]) => sum + it.length, 0)));
    const variables = new Map([...state.variables.keys()].map((name) => [name, null]));
    for (const [name, it] of handed) variables.set(name, [...it]);
    for (const [name, values] of assigned) variables.set(name, values);
    const exported = new Set([...state.exported, ...assigned.map(([name]) => name)]);
    return { variables, exported, depth: 0, grown: state.grown, copied: state.copied };
  }

  const one = (values) => (values && !values.some((it) => it.includes(MARK)) ? values.join(" ") : null);

  function assignmentOf({ text, known }) {
    const at = text.indexOf("=");
    const name = text.slice(0, at);
    return at >= 0 && ONLY_NAME.test(name) ? [name, known ? [text.slice(at + 1)] : null, ""] : null;
  }

  function assign(state, assigned, exported, inline = false) {
    for (const [name, given, more] of assigned) {
      let values = given;
      if (exported) state.exported.add(name);
      if (inline) continue; // it is told to that one command
      const before = state.variables.has(name) ? state.variables.get(name) : [];
      if (more === "list") {
        if (before && values) for (const it of values) before.push(it);
        values = before && values ? before : null;
      } else if (more === "text") {
        if (before && values) {
          const first = before.length ? before[0] : "";
          copies(state, first.length);
          before[0] = first + values[0];
        }
        values = before && values ? before : null;
      } else if (state.depth && state.variables.has(name) && !same(before, values)) {
        values = null; // it depends on the branch
      }
      state.variables.set(name, values);
    }
  }

  /** Takes one simple command after the other from a text. */
  class Reader {
    constructor(text, line, state, depth) {
      Object.assign(this, { text, at: 0, line, state, depth, heredocs: [] });
    }

    command() {
      const own = [], assigned = [], { text } = this;
      while (this.at < text.length) {
        const letter = text[this.at];
        let match;
        if (letter === " " || letter === "\t") this.at += 1;
        else if (text.startsWith("\\\n", this.at)) {
          this.at += 2;
          this.line += 1;
        } else if (letter === "#") this.toEnd();
        else if ("\n;&|()".includes(letter)) {
          if (letter === "&" && text[this.at + 1] === ">") {
            this.redirection();
            continue;
          }
          this.at += 1;
          if (letter === "\n") {
            this.line += 1;
            this.skipHeredocs();
          }
          if (own.length || assigned.length) return [own, assigned];
        } else if ((letter === "<" && !matched(PLACEHOLDER, text, this.at)) || letter === ">" || matched(NUMBERED, text, this.at)) this.redirection();
        else if (!own.length && (match = matched(ASSIGNED, text, this.at))) {
          this.at += match[0].length;
          const isList = text[this.at] === "(";
          let values;
          if (isList) values = this.array();
          else {
            const [made, isKnown] = this.marked(false);
            values = isKnown ? (made.length ? made : [""]) : null;
          }
          assigned.push([match[1], values, match[2] === "+=" ? (isList ? "list" : "text") : ""]);
        } else for (const word of this.word()) own.push(word);
      }
      return own.length || assigned.length ? [own, assigned] : null;
    }

    toEnd() {
      const end = this.text.indexOf("\n", this.at);
      this.at = end < 0 ? this.text.length : end;
    }

    array() {
      const values = [], { text } = this;
      let known = true;
      this.at += 1;
      while (this.at < text.length && text[this.at] !== ")") {
        if (text.startsWith("\\\n", this.at)) {
          this.at += 2;
          this.line += 1;
        } else if (ONE_SPACE.test(text[this.at])) {
          this.line += text[this.at] === "\n";
          this.at += 1;
        } else if (text[this.at] === "#") this.toEnd();
        else {
          const before = this.at;
          const [made, isKnown] = this.marked();
          for (const it of made) values.push(it);
          known &&= isKnown;
          if (this.at === before) this.at += 1; // a sign that has no meaning here
        }
      }
      this.at += 1;
      return known ? values : null;
    }

    redirection() {
      const match = matched(REDIRECTION, this.text, this.at);
      this.at += match[0].length;
      const made = this.word(false);
      if ((match[1] === "<<" || match[1] === "<<-") && made.length) this.heredocs.push(made[0].text);
    }

    skipHeredocs() {
      const { text } = this;
      for (const mark of this.heredocs) {
        while (this.at < text.length) {
          const found = text.indexOf("\n", this.at);
          const end = found < 0 ? text.length : found;
          const line = strip(text.slice(this.at, end));
          this.at = end + 1;
          this.line += 1;
          if (line === mark) break;
        }
      }
      this.heredocs = [];
    }

    /** The words that one word of the script stands for: none, one, or as many as its variables hold. */
    word(split = true) {
      const { line, at } = this, [made] = this.marked(split);
      const written = made.length === 1 ? this.text.slice(at, this.at) : ""; // with its quotes
      return made.map((it) => ({ text: shown(it), line, known: !it.includes(MARK), written }));
    }

    /** The same with what is not known marked, and whether it is all. */
    marked(split = true) {
      const { text } = this, begin = this.line, done = [];
      let parts = [], quoted = false, opened = false;
      const ended = (last) => {
        done.push(parts.join("") + last);
        parts = [];
      };
      while (this.at < text.length) {
        let letter = text[this.at];
        const placeholder = letter === "<" && matched(PLACEHOLDER, text, this.at);
        if (placeholder) {
          parts.push(marked(placeholder[0]));
          this.at += placeholder[0].length;
          continue;
        }
        if (ENDS.includes(letter)) break;
        if (letter === "\\") {
          if (text[this.at + 1] === "\n") this.line += 1;
          else parts.push(text.slice(this.at + 1, this.at + 2));
          this.at += 2;
        } else if (letter === "'" || text.startsWith("$'", this.at)) {
          const start = this.at + 1 + (letter === "$");
          const end = text.indexOf("'", start);
          if (end < 0) throw new Unreadable("quote", begin, "'");
          parts.push(text.slice(start, end));
          this.line += lines(text, start, end);
          this.at = end + 1;
          quoted = true;
        } else if (letter === '"') {
          this.at += 1;
          quoted = true;
          for (;;) {
            if (this.at >= text.length) throw new Unreadable("quote", begin, '"');
            letter = text[this.at];
            if (letter === '"') {
              this.at += 1;
              break;
            }
            const next = text[this.at + 1];
            if (letter === "\\" && next && '"\\$`\n'.includes(next)) {
              if (next === "\n") this.line += 1;
              else parts.push(next);
              this.at += 2;
            } else if (letter === "$" || letter === "`") {
              const [raw, values, isList] = this.expansion();
              if (!values) {
                if (ALL.has(raw) || isList) {
                  opened = true;
                  quoted = parts.length > 0;
                } else parts.push(marked(raw));
              } else if (isList) {
                if (!values.length) quoted = parts.length > 0;
                for (const value of values.slice(0, -1)) ended(value);
                parts.push(...values.slice(-1));
              } else parts.push(...values.slice(0, 1));
            } else {
              const end = Math.max(this.at + 1, search(QUOTED_END, text, this.at));
              parts.push(text.slice(this.at, end));
              this.line += lines(text, this.at, end);
              this.at = end;
            }
          }
        } else if (letter === "$" || letter === "`") {
          const [raw, values] = this.expansion();
          if (!values) {
            if (ALL.has(raw)) opened = true;
            else parts.push(marked(raw));
          } else if (split) {
            const pieces = values.flatMap(words);
            for (const piece of pieces.slice(0, -1)) ended(piece);
            parts.push(...pieces.slice(-1));
          } else parts.push(values.join(" "));
        } else {
          const end = Math.max(this.at + 1, search(PLAIN_END, text, this.at));
          parts.push(text.slice(this.at, end));
          this.at = end;
        }
      }
      if (parts.length || quoted) ended("");
      return [done, !opened];
    }

    /** As it is written, its values (null: not known), and whether each value is a word of its own. */
    expansion() {
      const { text, at: begin } = this;
      const raw = () => text.slice(begin, this.at);
      if (text[begin] === "`") {
        const end = text.indexOf("`", begin + 1);
        if (end < 0) throw new Unreadable("backtick", this.line);
        this.line += lines(text, begin, end);
        this.at = end + 1;
        return [raw(), strip(text.slice(begin + 1, end)).startsWith("#") ? [] : null, false];
      }
      const following = text[begin + 1] ?? "";
      if (following === "(" || following === "{") {
        const end = this.closing(begin + 1, following, following === "(" ? ")" : "}");
        this.at = end + 1;
        this.line += lines(text, begin, end);
        return [raw(), ...(following === "(" ? [null, false] : this.parameter(text.slice(begin + 2, end)))];
      }
      if (following === "@" || following === "*") {
        this.at = begin + 2;
        return [raw(), null, true];
      }
      const match = matched(NAME, text, begin + 1);
      if (!match) {
        const special = matched(SPECIAL, text, begin + 1);
        this.at = begin + 1 + (special ? special[0].length : 0);
        return [raw(), raw() === "$" ? ["$"] : null, false];
      }
      this.at += 1 + match[0].length;
      const [values] = this.value(match[0]);
      return [raw(), values ? values.slice(0, 1) : values, false];
    }

    closing(at, opening, closing) {
      let deep = 0, match;
      BRACKETS.lastIndex = at;
      while ((match = BRACKETS.exec(this.text))) {
        deep += (match[0] === opening) - (match[0] === closing);
        if (!deep) return match.index;
      }
      throw new Unreadable("bracket", this.line, `$${opening}`);
    }

    /** The values of a variable, and whether anything sets it. */
    value(name) {
      const { state } = this;
      if (!state.variables.has(name)) return [null, false];
      const values = state.variables.get(name);
      if (values) {
        for (const it of values) state.grown += it.length;
        if (state.grown > GROWTH) throw new Unreadable("grown", this.line, GROWTH >> 20);
      }
      return [values, true];
    }

    /** What stands in `${...}`. */
    parameter(inside) {
      const match = PARAMETER.exec(inside);
      if (!match || this.depth > DEPTH) return [null, false];
      const [, name, list, sign = "", preset = ""] = match;
      const isList = Boolean(list);
      if (name === "@" || name === "*") return [null, true];
      let [values, isSet] = this.value(name);
      const empty = isSet && values && (!values.length || same(values, [""])) && sign.startsWith(":");
      if (sign.endsWith("-") || sign.endsWith("=")) {
        if (!isSet || empty) {
          const inner = new Reader(preset, this.line, this.state, this.depth + 1);
          let made = [];
          while (inner.at < preset.length && made) {
            const letter = preset[inner.at];
            if (ONE_SPACE.test(letter) || ";&|<>()".includes(letter)) {
              made.push(letter);
              inner.at += 1;
              continue;
            }
            const [own, isKnown] = inner.marked(false);
            if (isKnown) for (const it of own) made.push(it);
            else made = null;
          }
          values = made && [made.join("")];
          if (sign.endsWith("=")) this.state.variables.set(name, values && [...values]);
          return [values, isList];
        }
      }
      if (sign.endsWith("+")) return [isSet ? null : [], isList];
      if (!values && isList && !isSet) return [null, true];
      return [isList || !values ? values : values.slice(0, 1), isList];
    }
  }

  // ---------------------------------------------------------------- launch.py

  const KEYS = 20_000, NESTED = 40, WRITTEN = 400;
  const LAUNCHERS = new Set(["torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed"]);
  // What starts each process itself, and the options by which it is told how many.
  const STARTERS = { srun: ["ntasks", "n"], mpirun: ["np", "n"], mpiexec: ["np", "n"] };
  const PYTHON = /^python[\p{Nd}.]*$/u;
  const FLAG = /^(?:-[bBdEiIOPqsSuvx]+|-[XW][^]*)$/; // of Python itself
  const UNSET = new RegExp(`^(?:\\$[${LETTER}]+|\\$\\{[^}]*\\}|\\$\\([^(].*|\`.*\`)$`, "u");
  const DASHED = /^--?[A-Za-z]/;
  // These give even a single process a rank, and DDP wraps its model. accelerate does so only for several.
  const RANKED = new Set(["torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed"]);
  const ONE_RANK = "ddp-ready-twice"; // what a run of one process has shown
  const PROCESSES = ["nproc_per_node", "num_processes", "num_gpus", "ntasks_per_node"];
  const NODES = ["nnodes", "num_nodes", "num_machines", "nodes", "N"], TOTALS = ["num_processes", "ntasks", "n", "np"];
  const CONFIGS = ["deepspeed", "deepspeed_config", "deepspeed_config_file"];
  const DISTRIBUTED = { DEEPSPEED: "deepspeed", FSDP: "fsdp", MEGATRON_LM: "megatron" };
  const SHELLS = /^(?:bash|sh|shell|console|zsh)?$/;
  const FENCE = new RegExp(`^[${SPACE}]*(\`{3,}|~{3,})[${SPACE}]*([${LETTER}]*)`, "u");
  const PROMPT = new RegExp(`^[${SPACE}]*\\$ `);

  const base = (text) => text.slice(text.lastIndexOf("/") + 1);
  const number = (text) => (text && /^[0-9]{1,6}$/.test(text) ? Number(text) : null);
  const preset = (map, key, value) => map.has(key) || map.set(key, value);
  const begins = (says, command) => `${says} `.startsWith(`${command} `) || says.startsWith(`${command}.`);

  /** The launches of a text; what kind it is tells its name, or else what it holds. */
  function launches(rules, text, name) {
    const stacks = Object.entries(rules.stacks);
    const suffix = (/\.(md|rst|ya?ml|json|sh|bash|slurm|sbatch|ksh)$/i.exec(name) || ["", ""])[1].toLowerCase();
    const kind = /^(?:md|rst)$/.test(suffix) ? "page" : /^(?:ya?ml|json)$/.test(suffix) ? "keys" : suffix ? "shell" : guessed(stacks, text);
    if (text.includes("\0")) throw new Unreadable("zero");
    if (kind === "keys") return ifNone(configuration(stacks, text), stacks, text);
    const asked = new Set(stacks.map(([, it]) => it.processes).filter(Boolean));
    const firsts = new Set(stacks.flatMap(([, it]) => it.commands.map((command) => command.split(" ")[0])));
    firsts.delete("python");
    const found = [], shown = kind === "page" ? fenced(text) : text;
    if (text.length <= SIZE && !hints(rules, stacks, shown)) return [];
    for (const command of commands(shown, asked)) {
      const launch = launched(rules, stacks, firsts, command);
      if (launch) found.push(launch);
    }
    return ifNone(found, stacks, shown);
  }

  /** Words of which a script that launches anything has one. */
  function hints({ stacks: all }, stacks, text) {
    const starts = stacks.flatMap(([, it]) => it.commands.map((command) => command.split(" ").at(command.startsWith("python") ? -1 : 0)));
    const marks = all.transformers.marks.map((it) => it.split(".")[0]), plain = text.replaceAll("-", "_");
    return [...LAUNCHERS, ...starts, ...marks].some((it) => plain.includes(it.replaceAll("-", "_")));
  }

  /** Where no launch could be read, the first word that looks like one: silence would read as a pass. */
  function ifNone(found, stacks, text) {
    if (found.length) return found;
    const starts = stacks.flatMap(([, it]) => it.commands).filter((it) => !it.startsWith("python")).sort();
    const words = starts.map((it) => it.replace(/[.-]/g, "\\$&").replaceAll(" ", "[ \\t]+"));
    words.push("torchrun", "torch\\.distributed\\.(?:run|launch)", "accelerate[ \\t]+launch");
    words.push("deepspeed(?=[ \\t].{0,200}(?:\\.py|\\\\)(?:[ \\t\\r\\f\\v]|$))"); // and no `pip install deepspeed`
    const looks = new RegExp(`(?<![\\w./-])(?<!-v )(?:${words.join("|")})(?=[ \\t]+[^ \\t\\r\\f\\v])`, "s");
    const rows = text.split("\n");
    for (let at = 0; at < rows.length; at += 1) {
      const [match] = looks.exec(rows[at].slice(0, 2000)) ?? [], [, first] = /^[ \t]*([^ \t]*)/.exec(rows[at]);
      if (!match || first.startsWith("#") || SPEAKING.has(first)) continue;
      return [{ command: match, line: at + 1, options: new Map(), processes: null, frameworks: [], unread: [], blind: false, unseen: match }];
    }
    return [];
  }

  function guessed(stacks, text) {
    if (/^[ \t]*(?:`{3}|~{3})/m.test(text)) return "page";
    const has = (key) => new RegExp(`^[ \\t{]*["']?${key.replaceAll(".", "\\.")}["']?[ \\t]*:`, "m").test(text);
    return stacks.some(([, it]) => it.keys.length && it.keys.every(has)) ? "keys" : "shell";
  }

  function launched({ stacks: all }, stacks, firsts, { words: given, environment }) {
    const starts = (at) => {
      const text = base(given[at].text), following = given[at + 1] ? given[at + 1].text : "";
      if (text === "accelerate") return following === "launch";
      if (PYTHON.test(text)) {
        const { text: what } = given[started(given, at)] ?? { text: "" };
        return what === "-m" || what.endsWith(".py");
      }
      return following !== "" && (LAUNCHERS.has(text) || firsts.has(text));
    };
    const at = given.findIndex((_, index) => starts(index));
    if (at < 0 || SPEAKING.has(given[0].text)) return null;
    const own = given.slice(at);
    const [launcher, before, rest] = split(own, firsts);
    if (!rest.length) return null;
    const says = rest.slice(0, 4).map((word, index) => (index ? word.text : base(word.text))).join(" ");
    const [name] = stacks.find(([, it]) => it.commands.some((command) => begins(says, command))) || [null];
    const [options, positional] = optionsOf(rest);
    const trains = () => all.transformers.marks.some((key) => options.has(key)) || options.has("deepspeed");
    if (name === null && launcher === null && (rest[0].text !== "python" || !trains())) return null; // python x.py: nothing tells that it trains
    const starter = launcher === null ? given.slice(0, at).findIndex(({ text }) => Object.hasOwn(STARTERS, base(text))) : -1;
    const by = starter < 0 ? launcher : base(given[starter].text);
    const launch = { command: says, line: own[0].line, options, processes: null, ranked: RANKED.has(by), frameworks: [], unread: [], blind: false };
    const [ahead] = optionsOf(starter < 0 ? before : given.slice(starter + 1, at));
    const said = by === null ? options : ahead, variable = name && all[name].processes;
    const told = [...(Object.hasOwn(STARTERS, by ?? "") ? STARTERS[by] : []), ...PROCESSES].find((it) => said.has(it));
    if (told) {
      launch.processes = number(said.get(told).value);
      const several = NODES.some((it) => said.has(it) && said.get(it).value !== "1");
      if (launch.processes === 1 && several && !TOTALS.includes(told)) launch.processes = null; // one on each of several machines
    } else if (by === null && name === null) launch.processes = 1; // python x.py
    else if (by === null && variable) launch.processes = number(environment.has(variable) ? environment.get(variable) : "1");
    if (launcher !== null) for (const [key, option] of ahead) preset(options, `launch.${key}`, option);
    follow(launch, positional);
    for (const { text, known } of positional.slice(2)) {
      // After what is started: a variable that nobody sets may hold any option.
      if (text !== "..." && (known || !UNSET.test(text))) continue;
      launch.unread.push(text);
      launch.blind = true;
    }
    frameworks(all, launch, name ?? byKeys(stacks, options));
    return launch;
  }

  /** The launcher, its own options, and the command that it starts, written as `python -m ...` or `python x.py`. */
  function split(own, firsts) {
    const first = base(own[0].text), python = { text: "python", line: own[0].line, known: true };
    let launcher, at;
    if (PYTHON.test(first)) {
      at = started(own, 0);
      if (own[at].text !== "-m" || !own[at + 1] || !LAUNCHERS.has(own[at + 1].text)) return [null, [], [python, ...own.slice(at)]];
      [launcher, at] = [own[at + 1].text, at + 2];
    } else if (LAUNCHERS.has(first)) [launcher, at] = [first, first === "accelerate" ? 2 : 1];
    else return [null, [], own];
    for (let i = at; i < own.length; i += 1) {
      const { text } = own[i];
      if (text === "-m" || text === "--module") return [launcher, own.slice(at, i), [python, { ...own[i], text: "-m", known: true }, ...own.slice(i + 1)]];
      if (text.endsWith(".py")) return [launcher, own.slice(at, i), [python, ...own.slice(i)]];
      if (firsts.has(base(text))) return [launcher, own.slice(at, i), own.slice(i)];
    }
    return [launcher, own.slice(at), []];
  }

  /** Where the `-m` or the script of a Python stands, behind Python's own flags. */
  function started(own, python) {
    let at = python + 1;
    while (at < own.length && FLAG.test(own[at].text)) at += own[at].text === "-X" || own[at].text === "-W" ? 2 : 1;
    return at;
  }

  /** Options by name, and the words that belong to none. */
  function optionsOf(given) {
    const found = new Map(), positional = [];
    for (let i = 0; i < given.length; ) {
      const word = given[i++];
      if (!DASHED.test(word.text)) {
        positional.push(word);
        continue;
      }
      const bare = word.text.replace(/^-+/, ""), sign = bare.indexOf("=");
      const key = sign < 0 ? bare : bare.slice(0, sign);
      let value = sign < 0 ? "" : bare.slice(sign + 1), { known } = word;
      const parts = [word];
      if (sign < 0 && i < given.length && !DASHED.test(given[i].text)) {
        ({ text: value, known } = given[i]);
        if (key.includes(".") || !value.endsWith(".py")) {
          parts.push(given[i]);
          i += 1;
        } else value = ""; // a flag before the script
      }
      // In a variable, with others, it may be written in other quotes.
      const inside = !(word.written.startsWith("-") && parts.at(-1).written);
      const written = onOneLine(parts.map((it) => (inside ? quotedWord(it.text) : it.written)).join(" "));
      put(found, key.replaceAll("-", "_"), known ? value : null, sign >= 0, { line: word.line, written, inside });
    }
    return [found, positional];
  }

  const isMapping = (value) => value.replace(OUTER, "").startsWith("{");

  const quotedWord = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`);

  // An option as it stands there, name and value; empty where that is long.
  const onOneLine = (written) =>
    Array.from(written).length > WRITTEN || /#[^\n]*\n/.test(written) ? "" : written.replaceAll("\n", " ");

  function put(found, key, given, signed, option) {
    let value = given;
    if (value !== null && isMapping(value) && !CONFIGS.includes(key)) {
      try {
        for (const [inner, it] of flat(value, option.line)) found.set(`${key}.${inner}`, { ...option, value: it.value });
        return;
      } catch (error) {
        if (!(error instanceof Unreadable)) throw error;
        value = null;
      }
    }
    found.set(key, { ...option, value: value === "" && !signed ? "true" : value });
  }

  /** The files that it names: none is at hand. */
  function follow(launch, positional) {
    const { options, unread } = launch;
    const named = positional.map((word) => word.text).filter((text) => /\.(?:yaml|yml|json)$/.test(text));
    for (const key of ["config", "config_yaml"]) if (options.get(key)?.value) named.push(options.get(key).value);
    unread.push(...named);
    launch.blind = named.length > 0;
    const file = options.get("launch.config_file");
    if (file?.value) unread.push(file.value);
    if (file) preset(options, "fsdp", { value: null, line: file.line }); // it may say FSDP, or anything else
    accelerate(launch);
    for (const key of CONFIGS) {
      const option = options.get(key) || options.get(`launch.${key}`);
      if (!option?.value) continue;
      let inner = new Map();
      if (isMapping(option.value)) inner = flat(option.value, option.line);
      else if (option.value.endsWith(".json")) unread.push(option.value);
      else continue;
      preset(options, "deepspeed", option);
      for (const [name, it] of inner) preset(options, `deepspeed.${name}`, it);
      if (inner.size) preset(options, "deepspeed.zero_optimization.stage", { value: "0", line: option.line });
    }
    for (const { text } of positional) if (text.endsWith(".py")) unread.push(text);
  }

  /** What accelerate's options say, in the words of the others. */
  function accelerate(launch) {
    const { options } = launch, told = new Map();
    for (const [key, option] of options) if (key.startsWith("launch.")) told.set(key.slice(7), option);
    const kind = told.get("distributed_type");
    if (kind?.value) {
      const upper = kind.value.toUpperCase();
      if (Object.hasOwn(DISTRIBUTED, upper)) preset(options, DISTRIBUTED[upper], { value: "true", line: kind.line });
      if (upper === "NO") launch.processes = 1;
    }
    const same = (from, to) => told.has(from) && preset(options, to, told.get(from));
    same("use_deepspeed", "deepspeed");
    same("use_fsdp", "fsdp");
    same("use_megatron_lm", "megatron");
    for (const name of ["zero_stage", "deepspeed_config.zero_stage"]) same(name, "deepspeed.zero_optimization.stage");
    const file = told.get("deepspeed_config.deepspeed_config_file");
    if (file) preset(options, "deepspeed_config_file", file);
    for (const name of ["fsdp_version", "fsdp_config.fsdp_version"]) same(name, "fsdp_version");
    if (told.has("num_processes") && launch.processes === null) launch.processes = number(told.get("num_processes").value);
  }

  function frameworks(all, launch, own) {
    const names = own ? [own] : [];
    const { marks, foreign } = all.transformers, has = (key) => launch.options.has(key);
    // A script that takes options of another program, and not the one that all of the Trainer's take, is none of the Trainer's.
    if (!own && marks.some(has) && (has(marks[0]) || !foreign.some(has))) names.push("transformers");
    while (names.length && all[names.at(-1)].base) names.push(all[names.at(-1)].base);
    launch.frameworks = names;
  }

  /** The framework whose own options are all there, however it is started. */
  function byKeys(stacks, options) {
    const tops = new Set([...options.keys()].map((key) => key.split(".")[0]));
    const [own] = stacks.find(([, it]) => it.keys.length && it.keys.every((key) => tops.has(key))) || [null];
    return own;
  }

  /** A framework's own YAML or JSON, which is a launch; of DeepSpeed's and accelerate's, nothing is one alone. */
  function configuration(stacks, text) {
    if (text.length > 4 << 20) throw new Unreadable("long", 1, 4);
    const options = flat(text, null);
    const own = byKeys(stacks, options), all = Object.fromEntries(stacks);
    if (own === null) return [];
    const launch = { command: all[own].title, line: 1, options, processes: null, frameworks: [], unread: [], blind: false };
    follow(launch, []);
    frameworks(all, launch, own);
    return [launch];
  }

  /** The commands of a Markdown page; all other lines are empty, so that the numbers stay. */
  function fenced(text) {
    let inside = null;
    return text.split("\n").map((line) => {
      const fence = FENCE.exec(line);
      if (!inside && fence) {
        inside = [fence[1][0].repeat(3), SHELLS.test(fence[2].toLowerCase())];
        return "";
      }
      if (inside && strip(line).startsWith(inside[0])) {
        inside = null;
        return "";
      }
      return inside?.[1] ? line.replace(PROMPT, "") : "";
    }).join("\n");
  }

  // ---------------------------------------------------------------- YAML and JSON, what launches need of them

  const UNPRINTABLE = /[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\u{10000}-\u{10ffff}]/u;
  const ESCAPES = { 0: "\0", a: "\x07", b: "\b", t: "\t", n: "\n", v: "\v", f: "\f", r: "\r", e: "\x1b", " ": " ", '"': '"', "/": "/", "\\": "\\", N: "\x85", _: "\xa0", L: "\u2028", P: "\u2029" };
  const WIDE = { x: 2, u: 4, U: 8 };
  const NULL = /^(?:~|null|Null|NULL|)$/;

  /** `{a: {b: 1}}` → `a.b`, each with its line. What this does not read (anchors, tags, texts over several lines) it refuses. */
  function flat(given, firstLine) {
    const text = given.replaceAll("\t", " ").replaceAll("\r\n", "\n");
    const found = new Map();
    let at = 0, line = 1, steps = 0, begun = false, begin = 0; // of the last key
    const refuse = (key = "yaml", ...values) => {
      throw new Unreadable(key, firstLine ?? line, ...values);
    };
    if ((text.match(/[[{]/g) || []).length > KEYS) refuse("many", "20,000");
    if (UNPRINTABLE.test(text)) refuse();
    const isEnd = (letter) => letter === undefined || letter === " " || letter === "\n";
    const column = () => at - text.lastIndexOf("\n", at - 1) - 1;

    /** Over white space and comments, and line ends where `down`. */
    function skip(down = true) {
      for (;;) {
        if (text[at] === " ") at += 1;
        else if (text[at] === "\n" && down) {
          at += 1;
          line += 1;
          if (begun && /^(?:---|\.\.\.)(?:[ \n]|$)/.test(text.slice(at, at + 4))) refuse(); // a second one begins
        } else if (text[at] === "#") {
          const end = text.indexOf("\n", at);
          at = end < 0 ? text.length : end;
        } else return;
      }
    }

    function visit(depth) {
      steps += 1;
      if (steps > KEYS || depth > NESTED) refuse("deep", "20,000", NESTED);
    }
    const put = (prefix, value, own) => {
      if (prefix === "" || value === null) return;
      const written = at - begin <= 2 * WRITTEN ? onOneLine(text.slice(begin, at).trimEnd()) : "";
      found.set(prefix, { value, line: firstLine ?? own, written, style: styleAt(begin) });
    };
    const styleAt = (place) => (text[place] === '"' ? "json" : "yaml");
    const inside = (prefix, key) => (prefix ? `${prefix}.${key}` : key);

    function quoted() {
      const sign = text[at++], parts = [];
      for (;;) {
        const start = at;
        while (at < text.length && text[at] !== sign && text[at] !== "\n" && (sign === "'" || text[at] !== "\\")) at += 1;
        parts.push(text.slice(start, at));
        if (at >= text.length || text[at] === "\n") refuse();
        if (text[at] === "\\") {
          const letter = text[at + 1];
          if (Object.hasOwn(WIDE, letter ?? "")) {
            const code = text.slice(at + 2, at + 2 + WIDE[letter]), value = parseInt(code, 16);
            if (!/^[0-9a-fA-F]+$/.test(code) || code.length < WIDE[letter] || (value >= 0xd800 && value <= 0xdfff) || value > 0x10ffff) refuse();
            parts.push(String.fromCodePoint(value));
            at += 2 + WIDE[letter];
          } else {
            if (!Object.hasOwn(ESCAPES, letter ?? "")) refuse();
            parts.push(ESCAPES[letter]);
            at += 2;
          }
        } else if (sign === "'" && text[at + 1] === "'") {
          parts.push("'");
          at += 2;
        } else {
          at += 1;
          return parts.join("");
        }
      }
    }

    /** What stands as it is written; null where that is nothing. */
    function plain(flow) {
      const letter = text[at], next = text[at + 1];
      if ("&*!".includes(letter)) refuse("anchor");
      if (",[]{}#|>'\"%@`".includes(letter) || ("-?:".includes(letter) && (isEnd(next) || flow))) {
        if (!(letter === "-" && !isEnd(next))) refuse();
      }
      const start = at;
      for (; at < text.length; at += 1) {
        const it = text[at];
        if (it === "\n") {
          const next = flow ? matched(/[ \n]*/y, text, at)[0].length + at : text.length;
          if (next >= text.length || ",[]{}#:".includes(text[next])) break;
          line += lines(text, at, next);
          at = next;
        }
        if (it === "#" && text[at - 1] === " ") break;
        if (it === ":" && isEnd(text[at + 1])) break;
        if (flow && it === ":" && ",?[]{}".includes(text[at + 1])) refuse();
        if (flow && ",[]{}".includes(it)) break;
      }
      return text.slice(start, at).replace(/ +$/, "").replace(/ *\n[ \n]*/g, (gap) => "\n".repeat(gap.split("\n").length - 2) || " ");
    }

    /** A scalar: its text, and whether it is one that says nothing. */
    function scalar(flow) {
      const isQuoted = text[at] === '"' || text[at] === "'", start = at;
      const value = isQuoted ? quoted() : plain(flow);
      return { value, nothing: !isQuoted && NULL.test(value), length: at - start };
    }

    function flowNode(prefix, depth) {
      visit(depth);
      const own = line;
      if (text[at] === "{") {
        at += 1;
        for (;;) {
          skip();
          if (text[at] === "}") break;
          if (at >= text.length) refuse();
          const own = line, start = at, key = scalar(true);
          skip();
          if (text[at] === ":") {
            begin = start;
            if (line !== own || key.length > 1000) refuse();
            at += 1;
            skip();
            if (at >= text.length) refuse();
            if (text[at] === "," || text[at] === "}") visit(depth + 1);
            else flowNode(inside(prefix, key.value), depth + 1);
            skip();
          } else visit(depth + 1);
          if (text[at] === ",") at += 1;
          else if (text[at] !== "}") refuse();
        }
        at += 1;
      } else if (text[at] === "[") {
        at += 1;
        for (let index = 0; ; index += 1) {
          skip();
          if (text[at] === "]") break;
          if (at >= text.length) refuse();
          flowNode(inside(prefix, index), depth + 1);
          skip();
          if (text[at] === ",") at += 1;
          else if (text[at] !== "]") refuse();
        }
        at += 1;
      } else {
        const { value, nothing } = scalar(true);
        if (!nothing) put(prefix, value, own);
      }
    }

    /** Whether a key stands here: words, then a colon that ends the word. */
    function keyHere() {
      const [start, own] = [at, line];
      let key = null;
      if (!"[{|>&*!".includes(text[at]) && !("-?".includes(text[at]) && isEnd(text[at + 1]))) {
        key = scalar(false);
        skip(false);
        if (text[at] !== ":" || !isEnd(text[at + 1])) key = null;
        else if (key.length > 1000) refuse();
      }
      if (key === null) [at, line] = [start, own];
      else [at, begin] = [at + 1, start];
      return key;
    }

    /** What stands deeper than `parent`, from here on. `same`: a list may stand as deep. */
    function blockNode(prefix, parent, depth, mayList = false) {
      skip();
      const deep = column();
      if (at >= text.length || !(deep > parent || (mayList && deep === parent && text[at] === "-" && isEnd(text[at + 1])))) {
        visit(depth);
        return; // nothing
      }
      const own = line;
      if (text[at] === "-" && isEnd(text[at + 1])) {
        visit(depth);
        for (let index = 0; at < text.length && column() === deep && text[at] === "-" && isEnd(text[at + 1]); index += 1) {
          at += 1;
          blockNode(inside(prefix, index), deep, depth + 1);
          skip();
        }
        if (at < text.length && column() > deep) refuse();
        return;
      }
      let key = keyHere();
      if (key) {
        visit(depth);
        for (;;) {
          value(inside(prefix, key.value), deep, depth + 1);
          skip();
          if (at >= text.length || column() < deep) return;
          if (column() > deep || !(key = keyHere())) refuse();
        }
      }
      content(prefix, parent, depth, own);
    }

    /** What stands behind a key: on its line, or below and deeper. */
    function value(prefix, deep, depth) {
      skip(false);
      if (at >= text.length || text[at] === "\n") blockNode(prefix, deep, depth, true);
      else content(prefix, deep, depth, line);
    }

    function content(prefix, parent, depth, own) {
      if (text[at] === "{" || text[at] === "[") flowNode(prefix, depth);
      else {
        visit(depth);
        if (text[at] === "|" || text[at] === ">") {
          if (!/^[|>][-+]?[ ]*(?:#.*)?(?:\n|$)/.test(text.slice(at, at + 200))) refuse();
          const rows = text.indexOf("\n", at);
          at = rows < 0 ? text.length : rows;
          while (at < text.length) { // as long as lines are empty or deeper
            const next = text.indexOf("\n", at + 1), end = next < 0 ? text.length : next;
            const row = text.slice(at + 1, end);
            if (/[^ ]/.test(row) && row.search(/[^ ]/) <= parent) break;
            at = end;
            line += 1;
          }
          if (prefix !== "") found.set(prefix, { value: null, line: firstLine ?? own, written: "", style: styleAt(begin) }); // a text over several lines: not read
          return;
        }
        const { value: told, nothing } = scalar(false);
        if (!nothing) put(prefix, told, own);
      }
      skip(false);
      if (at < text.length && text[at] !== "\n") refuse();
      skip();
      if (at < text.length && column() > parent) refuse(); // the text goes on in the next line
    }

    skip();
    if (/^---(?: *\n| *$)/.test(text.slice(at, at + 80)) && !column()) at += 3;
    else if (text[at] === "%" || text.startsWith("---", at) || text.startsWith("...", at)) refuse();
    begun = true;
    blockNode("", -1, 0);
    skip();
    if (at < text.length) refuse();
    return found;
  }

  // ---------------------------------------------------------------- facts.py

  const COMPARISON = new RegExp(`^(<=|>=|<|>)[${SPACE}]*(\\p{Nd}[${LETTER}.+-]*)$`, "u");
  const ROWS = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;
  const OFF = ["false", "no", "0", "none"];

  const version = (text) => (String(text).split("+")[0].match(/[0-9]+/g) || []).map(Number);

  function bounds(condition) {
    if (typeof condition !== "string") return [];
    const parts = condition.split(",").map((part) => COMPARISON.exec(strip(part)));
    return parts.every(Boolean) ? parts.map(([, sign, bound]) => [sign, bound]) : [];
  }

  function holds(condition, value) {
    if (Array.isArray(condition)) return condition.some((it) => holds(it, value));
    const compared = bounds(condition);
    if (compared.length) return compared.every(([sign, bound]) => compare(version(value), sign, version(bound)));
    return String(condition).toLowerCase() === String(value).toLowerCase();
  }

  function compare(a, sign, b) {
    let order = 0;
    for (let i = 0; i < Math.max(a.length, b.length) && !order; i += 1) order = Math.sign((a[i] || 0) - (b[i] || 0));
    return { "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0 }[sign];
  }

  /** true, false, or null where not enough is known (a Map). */
  function fits(query, known) {
    const answers = Array.isArray(query)
      ? query.map((where) => fits(where, known))
      : Object.entries(query).map(([name, condition]) => (known.has(name) ? holds(condition, known.get(name)) : null));
    const first = Array.isArray(query);
    if (answers.includes(first)) return first;
    return answers.includes(null) ? null : !first;
  }

  function ofCommand(script, rules, versions, options) {
    const rows = script.split(ROWS).filter((row) => !strip(row).startsWith("#"));
    const said = words(rows.join(" ").replaceAll("\\ ", " ")).join(" ");
    const found = new Map();
    for (const rule of rules) {
      if (!said.includes(rule.text ?? "")) continue;
      const known = new Map([...versions, ...found].filter(([, value]) => value !== null));
      for (const [name, value] of found) if (value === null) known.delete(name);
      const answers = [isGiven(rule, options), fits(rule.where ?? {}, known)];
      if (answers.includes(false)) continue;
      for (const [name, value] of Object.entries(rule.facts)) preset(found, name, answers.includes(null) ? null : value);
    }
    return found;
  }

  function isGiven({ option, is, without }, options) {
    if (!option) return true;
    if (!options.has(option) || options.has(without)) return false;
    const { value } = options.get(option);
    if (value === null) return null;
    return is === undefined || is === null ? !OFF.includes(value.toLowerCase()) : holds(is, value);
  }

  // ---------------------------------------------------------------- judge.py

  const WORLDS = 64, OLDEST = "0";
  const LEVELS = ["error", "warning", "note", "not-covered"];
  const SETTINGS = [
    "use_reentrant",
    "gradient_checkpointing_kwargs.use_reentrant",
    "activation_checkpointing_kwargs.use_reentrant",
    "use_reentrant_gc",
    "gradient_checkpointing",
    "activation_checkpointing",
  ];

  // A value that switches on, and the same that switches off, as it is written.
  const SWITCHED = { true: "false", True: "False", TRUE: "FALSE", 1: "0", yes: "no", Yes: "No", on: "off", On: "Off" };

  function percent(share) { // halves to the even number, as Python rounds
    const value = share * 100, rounded = Math.round(value);
    return `${value % 1 === 0.5 && rounded % 2 ? rounded - 1 : rounded}%`;
  }

  /** Asks the rules about launches, in one language, with these versions (a Map). */
  function judge(rules, language, versions) {
    const say = (key, ...values) => rules.words[key][language].replace(/\{(?::\.0%)?\}/g, () => values.shift());
    const page = (path) => (rules.site ? `${rules.site}/${path}` : path);
    const inRuns = (count) => say(count === 1 ? "run" : "runs", count);
    const answered = new Map();

    function of(launch) {
      const key = JSON.stringify([
        launch.command, launch.frameworks, launch.processes === 1, launch.ranked, launch.blind, launch.unseen, launch.unread,
        launch.frameworks.flatMap((name) => rules.stacks[name].launch.map(({ option }) => option && (launch.options.get(option)?.value ?? launch.options.has(option)))),
      ]);
      if (!answered.has(key)) answered.set(key, findings(launch));
      const name = SETTINGS.find((it) => launch.options.has(it)), told = launch.options.get(name);
      const written = told && (told.written || asOptions([[name, told.value || "..."]], told.style));
      return answered.get(key).map(([it, world, tried]) => {
        const [change, fix, place] = world ? changeOf(launch, new Map([...versions, ...world]), tried, name) : [null, null, told || launch];
        return { ...it, line: place.line, option: told && place === told ? written : null, change, fix };
      });
    }

    /** Notes on incidents that the launch may meet: by an option of it, its words, its strategy, and the releases. */
    function signs(launch) {
      if (launch.processes === 1 || launch.unseen) return []; // two ranks showed it
      const values = [...launch.options.values()].map(({ value }) => value || "");
      const said = [launch.command, ...values].join("\n").toLowerCase();
      const shown = rules.signs.map((sign) => [sign, shownBy(sign, launch, said)]).filter(([, name]) => name);
      if (!shown.length) return [];
      const facts = isReadable(launch) ? factsOf(launch, versions) : [];
      const known = new Map([["strategy", strategyOf(launch)], ...versions, ...facts]);
      return shown.flatMap(([{ where, text, id, runs }, name]) => {
        const absent = Object.keys(where).filter((each) => (known.get(each) ?? null) === null);
        const fitting = ([each, condition]) => (absent.includes(each) ? rules.versions.includes(each) : holds(condition, known.get(each)));
        if (!Object.entries(where).every(fitting)) return [];
        const { line, written, value, style } = launch.options.get(name);
        const finding = { level: "note", code: id, what: text[language], page: page(`incidents/${id}/`), runs, wrong: false };
        const option = written || asOptions([[name, value || "..."]], style);
        return [{ ...finding, versions: absent.map((each) => `${each} ${where[each]}`).join("; "), line, option, change: null, fix: null }];
      });
    }

    /** The option by which a launch shows a sign; none where something speaks against it. */
    function shownBy({ any, is, unless, words: asked }, launch, said) {
      if (unless.some((name) => launch.options.has(name)) || (asked.length && !asked.some((word) => said.includes(word)))) return undefined;
      return any.find((option) => isGiven({ option, is }, launch.options));
    }

    const hasOptions = (launch) => [...launch.options.keys()].some((name) => !name.startsWith("launch."));
    const isReadable = (launch) => launch.frameworks.length && !launch.blind && hasOptions(launch);

    /** That of a loop of one's own: only what an option says counts, since no default of the Trainer's is its own. */
    function strategyOf(launch) {
      const told = rules.stacks.transformers.launch.filter((rule) => rule.option && "strategy" in rule.facts);
      for (const option of ["python.ddp", "launch.multi_gpu"]) told.push({ option, facts: { strategy: "ddp" } });
      if (launch.options.get("launch.distributed_type")?.value?.toUpperCase() === "MULTI_GPU") told.push({ facts: { strategy: "ddp" } });
      return ofCommand(launch.command, told, versions, launch.options).get("strategy");
    }

    function findings(launch) {
      const judged = new Map(), [worlds, tried] = worldsOf(launch);
      for (const world of worlds) {
        let verdict = verdictOf(launch, new Map([...versions, ...world]));
        if (launch.processes === 1 && verdict && verdict.code !== ONE_RANK) verdict = null; // two ranks showed it
        const key = JSON.stringify(verdict);
        if (!judged.has(key)) judged.set(key, [verdict, []]);
        judged.get(key)[1].push(world);
      }
      const several = judged.size > 1, found = [];
      for (const [verdict, where] of judged.values()) {
        if (!verdict) continue;
        const finding = {
          level: verdict.level === "error" && several ? "warning" : verdict.level,
          code: verdict.code,
          what: verdict.what,
          versions: several ? ranges(where, tried) : "",
          page: verdict.page,
          runs: verdict.runs,
          wrong: verdict.wrong,
        };
        found.push([finding, verdict.fixed && where.at(-1), tried]);
      }
      return found.sort(([a], [b]) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level));
    }

    function rulesOf(launch) {
      const own = launch.frameworks.flatMap((name) => rules.stacks[name].launch);
      const first = (rule) => "strategy" in rule.facts;
      return [...own.filter(first), ...own.filter((rule) => !first(rule))];
    }

    function factsOf(launch, known) {
      const told = ofCommand(launch.command, rulesOf(launch), known, launch.options);
      return new Map([...told].filter(([, value]) => value !== null));
    }

    function verdictOf(launch, known) {
      if (launch.processes === 1 && !launch.ranked) return null;
      if (launch.unseen) return uncovered(say("unseen", launch.unseen));
      if (!launch.frameworks.length) return uncovered(say("not-trainer"));
      if (launch.blind) return uncovered(say("elsewhere", launch.unread.join(", ")));
      if (!hasOptions(launch)) return uncovered(say("no-option"));
      const facts = factsOf(launch, known);
      if (!facts.has("strategy")) return uncovered(say("strategy") + (launch.unread.length ? say("absent", launch.unread.join(", ")) : ""));
      if (!facts.has("checkpointing")) return uncovered(say("checkpointing"));
      const asked = (change) => {
        const all = new Map([...known, ...facts]);
        change(all);
        return judged(all);
      };
      let verdict = asked(() => {});
      if (verdict && verdict.level === "error" && facts.has("runs")) {
        const once = asked((all) => {
          all.delete("runs");
          if (known.has("runs")) all.set("runs", known.get("runs"));
        });
        // What the framework's own code repeats decides.
        if (once?.level !== "error") verdict = { ...verdict, level: "warning", what: say("repeat", verdict.what) };
      }
      if (verdict && verdict.level !== "not-covered" && facts.get("checkpointing") === "reentrant") {
        const better = asked((all) => all.set("checkpointing", "non-reentrant"));
        if (!better || (LEVELS.indexOf(better.level) > LEVELS.indexOf(verdict.level) && better.level === "note")) return { ...verdict, fixed: true };
      }
      return verdict;
    }

    const verdictWith = (level, code, what, where, runs, wrong = false) => ({ level, code, what, page: where, runs, fixed: false, wrong });
    const uncovered = (why) => verdictWith("not-covered", "not-covered", say("uncovered", why), page("decision/"), 0);

    function judged(known) {
      const byUse = new Map(), strategy = known.get("strategy");
      for (const cell of rules.cells) {
        if (cell.strategy !== strategy || fits(cell.where, known) === false || fits(rules.uses[cell.use].where, known) === false) continue;
        for (const part of cell.parts) {
          if (!part.path.every(([name, condition, inside]) => condition === null || !known.has(name) || holds(condition, known.get(name)) === inside)) continue;
          if (!byUse.has(cell.use)) byUse.set(cell.use, []);
          for (const [label, count] of Object.entries(part.outcomes)) byUse.get(cell.use).push([label, count, part]);
        }
      }
      if (!byUse.size) return uncovered(say("no-run", rules.strategies[strategy]?.[language] ?? strategy));
      const right = new Map([...byUse].map(([use, told]) => [use, told.every(([label]) => label === "match")]));
      if ([...right.values()].every(Boolean)) return null;
      const [[first, own]] = byUse, every = [...byUse.values()].flat();
      const runs = every.reduce((sum, [, count]) => sum + count, 0);
      const matches = (told) => told.some(([label]) => label === "match");
      if (!matches(every) || (!right.get(first) && !matches(own))) return said(own, runs);
      const bad = [...byUse].filter(([use]) => !right.get(use)).map(([use, told]) => [use, told.filter(([label]) => label !== "match")]);
      const where = bad.map(([use, told]) => say("case", rules.uses[use].text[language], kinds(told))).join(say("next"));
      const what = say("depends", say(right.get("once") ? "once" : "mixed"), where);
      const wrong = bad.some(([, told]) => told.some(([label]) => label === "diverge"));
      return verdictWith("note", "depends", what, page(`decision/#${strategy}-${bad[0][0]}`), runs, wrong);
    }

    function said(told, runs) {
      const [label, , part] = told.reduce((best, it) => (it[1] > best[1] ? it : best));
      const family = label.split(":").slice(1).join(":");
      const where = family ? rules.families[family].path : `incidents/${part.incident}/evidence/#${part.run}`;
      return verdictWith("error", family || "wrong-gradients", outcomes(told), page(where), runs);
    }

    function outcomes(told) {
      const counts = new Map();
      for (const [label, count] of told) counts.set(label, (counts.get(label) || 0) + count);
      return [...counts].sort((a, b) => b[1] - a[1]).map(([label, count]) => {
        const [outcome, ...rest] = label.split(":"), family = rest.join(":"), runs = inRuns(count);
        if (family) return say("stops-with", rules.families[family].title, runs);
        if (outcome !== "diverge") return say(outcome, runs);
        const wrong = Math.max(...told.filter(([it]) => it === label).map(([, , part]) => part.gradient_error || 0));
        return say("wrong-by", percent(wrong), runs);
      }).join(say("next"));
    }

    function kinds(told) {
      const names = [...new Set(told.map(([label]) => (["diverge", "still"].includes(label) ? "wrong" : "stops")))].sort();
      const text = names.map((it) => say(it)).join(say("or"));
      const runs = inRuns(told.reduce((sum, [, count]) => sum + count, 0));
      return language === "en" ? `${text} (${runs})` : `${text}（${runs}）`;
    }

    // What is not known of versions: a release on each side of every bound that a rule or a run asks for.
    function worldsOf(launch) {
      const asked = new Map(), conditions = [];
      for (const { where = {} } of rulesOf(launch)) if (!Array.isArray(where)) conditions.push(...Object.entries(where));
      if (String(factsOf(launch, versions).get("strategy")).startsWith("zero")) {
        for (const cell of rules.cells) for (const part of cell.parts) for (const [name, condition] of part.path) conditions.push([name, condition]);
      }
      for (const [name, condition] of conditions) {
        if (!rules.versions.includes(name) || versions.has(name)) continue;
        if (!asked.has(name)) asked.set(name, new Set());
        for (const [, bound] of bounds(condition)) asked.get(name).add(bound);
      }
      const tried = new Map([...asked].filter(([, found]) => found.size).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, found]) => [name, [OLDEST, ...[...found].sort(older)]]));
      let worlds = [new Map()];
      // The last package turns first; the first 64 combinations need no more than 64 of those that follow.
      for (const [name, releases] of [...tried].reverse()) {
        worlds = releases.flatMap((release) => worlds.map((world) => new Map([[name, release], ...world]))).slice(0, WORLDS);
      }
      return [worlds, tried];
    }

    function older(one, other) {
      const [a, b] = [version(one), version(other)];
      for (let i = 0; i < Math.min(a.length, b.length); i += 1) if (a[i] !== b[i]) return a[i] - b[i];
      return a.length - b.length;
    }

    function ranges(where, tried) {
      const told = [];
      for (const [name, releases] of tried) {
        const here = new Set(where.map((world) => world.get(name)));
        if (here.size === releases.length) continue;
        releases.forEach((first, at) => {
          if (!here.has(first) || (at && here.has(releases[at - 1]))) return;
          let last = at;
          while (last + 1 < releases.length && here.has(releases[last + 1])) last += 1;
          const parts = [...(first === OLDEST ? [] : [`>= ${first}`]), ...releases.slice(last + 1, last + 2).map((it) => `< ${it}`)];
          told.push(`${name} ${parts.join(", ")}`);
        });
      }
      return told.join("; ");
    }

    /** What to do, the text for it, and where. It is offered only if the launch, read with it, is non-reentrant. */
    function changeOf(launch, known, tried, name) {
      const { options } = launch, option = options.get(name);
      const reaches = (settings) => {
        const changed = { ...launch, options: new Map([...options, ...settings.map(([key, value]) => [key, { value }])]) };
        return factsOf(changed, known).get("checkpointing") === "non-reentrant";
      };
      if (option && /use_reentrant(?:_gc)?$/.test(name) && reaches([[name, "false"]])) return ["replace", switchedOff(name, option), option];
      const tops = new Set([...options.keys()].map((key) => key.split(".")[0]));
      for (const form of launch.frameworks.flatMap((it) => rules.forms[it])) {
        const settings = Object.entries(form.settings).filter(([key]) => !options.has(key));
        // It would take the place of what stands there.
        if (settings.some(([key]) => key.includes(".") && tops.has(key.split(".")[0]))) continue;
        if (!settings.length || !isAsked(form, known, tried) || !reaches(settings)) continue;
        let place = option && !option.inside && option;
        // Beside another key of the file: an option of a command has no style of its own.
        if (!option && form.in_file) [, place] = [...options].find(([key, it]) => !key.includes(".") && it.style) || [];
        place ||= launch;
        return ["add", asOptions(settings, place.style), place];
      }
      return [null, null, option || launch];
    }

    function isAsked({ package: name, since, before }, known, tried) {
      const release = known.get(name || "");
      if (release === OLDEST) return since === null || older(since, tried.get(name)[1]) < 0;
      return release === undefined || ((!since || holds(`>= ${since}`, release)) && (!before || holds(`< ${before}`, release)));
    }

    function switchedOff(name, { value, written, style }) {
      const key = name.split(".").at(-1).replaceAll("_", "[-_]");
      const match = new RegExp(`${key}\\W+(\\w+)`, "d").exec(written);
      if (!match || match[1] !== value || !Object.hasOwn(SWITCHED, value)) return asOptions([[name, "false"]], style);
      const [start, end] = match.indices[1];
      return written.slice(0, start) + SWITCHED[value] + written.slice(end);
    }

    /** Names and values as the options of a command, or as keys and values. */
    function asOptions(settings, style = "bash") {
      return settings.map(([name, value]) => {
        const [key, inner] = name.split(".");
        if (style === "bash") return `--${key} ${inner ? `'{"${inner}": ${value}}'` : value}`;
        if (style === "yaml") return inner ? `${key}:\n  ${inner}: ${value}` : `${key}: ${value}`;
        return `"${key}": ${inner ? `{"${inner}": ${value}}` : value}`;
      }).join({ bash: " ", yaml: "\n" }[style] || ", ");
    }

    return { of, signs, factsOf };
  }

  /** What there is to say of a text: how many launches it holds, how many of them start more than one process, the findings; or why it cannot be read. */
  function lint(rules, text, language, name = "paste", versions = {}) {
    try {
      const known = new Map(Object.entries(versions));
      const asked = judge(rules, language, known);
      const found = launches(rules, text.replace(/^\ufeff+/, ""), name);
      return {
        launches: found.filter((launch) => !launch.unseen).length,
        several: found.filter((launch) => launch.processes !== 1).length,
        findings: found.flatMap((launch) => [...asked.of(launch), ...asked.signs(launch)]),
      };
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      const why = error.values.reduce((told, value) => told.replace("{}", () => value), rules.words[error.key][language]);
      return { launches: 0, several: 0, findings: [], unreadable: why, line: error.line };
    }
  }

  return { lint };
}
