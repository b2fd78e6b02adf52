/* The lint for a browser: what scripts/readyonce/launches and scripts/readyonce/lint say of single commands. Anything more,
   such as variables, branches, files and YAML, is for `readyonce lint` in a terminal. Pure functions, no page, no network;
   what the text names is not followed. One function holds everything, so that its own text can be handed to a worker. Tests
   hold both engines equal. */

// biome-ignore lint/correctness/noUnusedVariables: diagnose-page.js calls it
function readyonceLint() {
  "use strict";

  // ---------------------------------------------------------------- single commands

  const SIZE = 1 << 16; // characters: more than any command
  const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"; // of Python
  const LETTER = "\\p{L}\\p{N}_";
  const SPACES = new RegExp(`[${SPACE}]+`);
  const OUTER = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "g");
  const strip = (text) => text.replace(OUTER, "");
  // Words with which more begins than a command.
  const MORE = new Set("if then elif else fi for while until do done case esac select function { } ! in eval declare local readonly typeset source . read".split(" "));
  const INNER = /^(?:.*\/)?(?:bash|sh|zsh|dash|ksh)$/;
  const SIGNS = /[ \t]+|\\\n|#[^\n]*|(?!<[A-Za-z_][\w./-]*>)(?:&?[0-9]*(?:>{1,2}|<)&?[ \t]*)(?=[^ \t\n<>(])|&&|\|\||[\n;&|]/y; // between words
  const PIECE = /[^\s;&|<>()\\'"$`]+|\\[^\n]|'[^']*'|"(?:[^"\\$`]|\\["\\])*"|(<[A-Za-z_][\w./-]*>)|(\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}))/y;

  let names = {}; // of launchers, options and their like: compiled for both engines

  class Unreadable extends Error {
    /** Why, as a key of the words, and in which line. */
    constructor(key, line = 1) {
      super(key);
      Object.assign(this, { key, line });
    }
  }

  const matched = (pattern, text, at) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  const isSetting = ({ text }) => /^[A-Za-z_]\w*=/.test(text);
  const lines = (text) => text.split("\n").length - 1;

  /** One word at a place: its text, whether all of it is known, and how it is written. */
  function wordAt(text, at, line) {
    let end = at, said = "", known = true;
    for (let match; end < text.length && (match = matched(PIECE, text, end)); end += match[0].length) {
      const [piece, placeholder, variable] = match;
      if (placeholder || variable) known = false;
      if (/^['"]/.test(piece)) said += piece[0] === "'" ? piece.slice(1, -1) : piece.slice(1, -1).replace(/\\(["\\])/g, "$1");
      else said += piece[0] === "\\" ? piece.slice(1) : piece;
    }
    if (end === at) throw new Unreadable("terminal", line);
    const written = text.slice(at, end);
    return { text: said, line, known, written };
  }

  /** The commands of a text, their words and what each is told in front of it. Raises `Unreadable` where it holds more. */
  function commands(given) {
    if (given.length > SIZE) throw new Unreadable("terminal");
    const text = given.replaceAll("\r\n", "\n"), found = [], set = new Set(), exported = new Map(), used = new Map();
    let words = [], line = 1, skip = false;
    const done = () => {
      const first = words.findIndex(({ written }) => !/^[A-Za-z_]\w*=/.test(written));
      const told = words.slice(0, first < 0 ? words.length : first), own = first < 0 ? [] : words.slice(first);
      const pairs = (from) => from.filter(isSetting).map((word) => [word.text.split("=")[0], word.known ? word.text.slice(word.text.indexOf("=") + 1) : null]);
      if (MORE.has(own[0]?.text) || own[0]?.known === false || words.some(({ text: it }) => INNER.test(it) || /^[A-Za-z_]\w*\+=/.test(it))) throw new Unreadable("terminal", words[0].line);
      if (own[0]?.text === "export") {
        for (const [name, value] of pairs(own.slice(1))) exported.set(name, value);
        if (own.slice(1).some((word) => !isSetting(word))) throw new Unreadable("terminal", own[0].line);
      } else if (own.length) found.push({ words: own, environment: new Map([...exported, ...pairs(told), ...pairs(own.slice(1))]) });
      else {
        for (const [name] of pairs(told)) {
          if (exported.has(name)) throw new Unreadable("terminal", told[0].line);
          set.add(name); // a variable of the shell alone
        }
      }
      words = [];
    };
    for (let at = 0; at < text.length; ) {
      const [sign] = matched(SIGNS, text, at) ?? [""];
      if (sign && !/^&?[0-9]*[<>]/.test(sign)) {
        at += sign.length;
        line += lines(sign);
        if (/[\n;&|]$/.test(sign) && sign !== "\\\n") done();
      } else if (sign) {
        at += sign.length;
        skip = true; // what stands behind it is a file
      } else {
        const word = wordAt(text, at, line);
        at += word.written.length;
        line += lines(word.written);
        for (const [, name] of word.written.matchAll(/\$\{?([A-Za-z_]\w*)/g)) used.set(name, word.line);
        if (!skip) words.push(word);
        skip = false;
      }
    }
    done();
    for (const [name, where] of used) if (set.has(name) || exported.has(name)) throw new Unreadable("terminal", where);
    return found;
  }

  // ---------------------------------------------------------------- reader.py

  const WRITTEN = 400;
  const PYTHON = /^python[\p{Nd}.]*$/u;
  const FLAG = /^(?:-[bBdEiIOPqsSuvx]+|-[XW][^]*)$/; // of Python itself
  const UNSET = new RegExp(`^\\$(?:[${LETTER}]+|\\{[^}]*\\})$`, "u");
  const DASHED = /^--?[A-Za-z]/;
  const SETTING = new RegExp(`^\\+{0,2}([A-Za-z_][${LETTER}.]*)=([^]*)$`, "u"); // of Hydra, which has no dashes
  const base = (text) => text.slice(text.lastIndexOf("/") + 1);
  const number = (text) => (text && /^[0-9]{1,6}$/.test(text) ? Number(text) : null);
  const preset = (map, key, value) => map.has(key) || map.set(key, value);
  const begins = (says, command) => `${says} `.startsWith(`${command} `) || says.startsWith(`${command}.`);

  /** The launches of a text. */
  function launches(rules, text) {
    if (text.includes("\0")) throw new Unreadable("zero");
    const stacks = Object.entries(rules.stacks);
    const firsts = new Set(stacks.flatMap(([, it]) => it.commands.map((command) => command.split(" ")[0])));
    firsts.delete("python");
    const has = (key) => new RegExp(`^[ \\t{]*["']?${key.replaceAll(".", "\\.")}["']?[ \\t]*:`, "m").test(text);
    if (stacks.some(([, it]) => it.keys.length && it.keys.every(has))) throw new Unreadable("terminal"); // a configuration
    const plain = text.replaceAll("-", "_");
    if (!names.hints.some((it) => plain.includes(it))) return [];
    const found = commands(text).flatMap((command) => launched(rules, stacks, firsts, command) ?? []);
    const looks = found.length ? -1 : text.split("\n").findIndex(looksLike);
    if (looks >= 0) throw new Unreadable("terminal", looks + 1); // silence would read as a pass
    return found;
  }

  /** Whether a line has words that look like a launch. */
  function looksLike(line) {
    const [, first] = /^[ \t]*([^ \t]*)/.exec(line);
    return new RegExp(names.looks).test(line.slice(0, 2000)) && !first.startsWith("#") && !names.speaking.includes(first);
  }

  function launched({ stacks: all, models }, stacks, firsts, { words: given, environment }) {
    const starts = (at) => {
      const text = base(given[at].text), following = given[at + 1] ? given[at + 1].text : "";
      if (text === "accelerate") return following === "launch";
      if (PYTHON.test(text)) {
        const { text: what } = given[started(given, at)] ?? { text: "" };
        return what === "-m" || what.endsWith(".py");
      }
      return following !== "" && (names.launchers.includes(text) || firsts.has(text));
    };
    const at = given.findIndex((_, index) => starts(index));
    if (at < 0 || names.speaking.includes(given[0].text)) return null;
    const own = given.slice(at);
    const [launcher, before, rest] = split(own, firsts);
    if (!rest.length) return null;
    const says = rest.slice(0, 4).map((word, index) => (index ? word.text : base(word.text))).join(" ");
    const [name] = stacks.find(([, it]) => it.commands.some((command) => begins(says, command))) || [null];
    const behind = rest[1]?.text === "-m" && rest.length > 2 ? 3 : 2, [options, positional] = optionsOf(rest.slice(behind));
    const trains = () => all.transformers.marks.some((key) => options.has(key)) || options.has("deepspeed");
    if (name === null && launcher === null && (rest[0].text !== "python" || !trains())) return null; // python x.py: nothing tells that it trains
    const starter = launcher === null ? given.slice(0, at).findIndex(({ text }) => Object.hasOwn(names.starters, base(text))) : -1;
    const by = starter < 0 ? launcher : base(given[starter].text);
    const launch = { command: says, line: own[0].line, options, processes: null, ranked: names.ranked.includes(by), frameworks: [], unread: [], blind: false };
    const [ahead] = optionsOf(starter < 0 ? before : given.slice(starter + 1, at));
    const said = by === null ? options : ahead, variable = name && all[name].processes;
    const told = [...(Object.hasOwn(names.starters, by ?? "") ? names.starters[by] : []), ...names.processes].find((it) => said.has(it));
    const gpus = by === "deepspeed" && /^[\w.-]+:([0-9]+(?:,[0-9]+)*)$/.exec(said.get("include")?.value ?? "");
    if (gpus) launch.processes = gpus[1].split(",").length;
    else if (told) {
      launch.processes = number(said.get(told).value);
      const nodes = names.machines.find((it) => said.has(it)), several = nodes && said.get(nodes).value !== "1";
      if (launch.processes === 1 && several && !names.totals.includes(told)) launch.processes = null; // one on each of several machines
    } else if (by === null && name === null) launch.processes = 1; // python x.py
    else if (by === null && variable) {
      launch.processes = number(environment.has(variable) ? environment.get(variable) : "1");
      if (launch.processes === 1 && environment.has(names.nodes) && environment.get(names.nodes) !== "1") launch.processes = null;
    }
    if (launcher !== null) for (const [key, option] of ahead) preset(options, `launch.${key}`, option);
    const megatron = environment.has(names.megatron) ? environment.get(names.megatron) : "0";
    if (!["0", "false"].includes(megatron)) options.set("megatron", { value: megatron, line: own[0].line, written: "" });
    follow(launch, [...rest.slice(0, behind), ...positional]);
    for (const { text, known } of positional) {
      // A variable that nobody sets may hold any option.
      if (text !== "..." && (known || !UNSET.test(text))) continue;
      launch.unread.push(text);
      launch.blind = true;
    }
    const mine = name ?? byKeys(stacks, options);
    frameworks(all, launch, mine);
    const file = options.get("deepspeed"), stage = mine === null && new RegExp(`^(?:${names.stage_name})$`).exec(file?.value ?? "");
    if (stage) preset(options, "deepspeed.stage_by_name", { ...file, value: stage[1], written: "" });
    const asked = options.get(names.models.find((it) => options.has(it))), called = base((asked?.value ?? "").replace(/\/+$/, "")).toLowerCase();
    if (Object.hasOwn(models, called)) options.set("model.class", { ...asked, value: models[called], written: "" });
    return launch;
  }

  /** The launcher, its own options, and the command that it starts, written as `python -m ...` or `python x.py`. */
  function split(own, firsts) {
    const first = base(own[0].text), python = { text: "python", line: own[0].line, known: true };
    let launcher, at;
    if (PYTHON.test(first)) {
      at = started(own, 0);
      if (own[at].text !== "-m" || !own[at + 1] || !names.launchers.includes(own[at + 1].text)) return [null, [], [python, ...own.slice(at)]];
      [launcher, at] = [own[at + 1].text, at + 2];
    } else if (names.launchers.includes(first)) [launcher, at] = [first, first === "accelerate" ? 2 : 1];
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
      const setting = SETTING.exec(word.text);
      if (setting) {
        put(found, setting[1], word.known ? setting[2] : null, true, { line: word.line, written: onOneLine(word.written) });
        continue;
      }
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
        parts.push(given[i]);
        i += 1;
        const isData = value.endsWith(".json") && ![...names.configurations, ...names.configs].includes(key);
        while (isData && i < given.length && given[i].text.endsWith(".json") && !DASHED.test(given[i].text)) i += 1;
      }
      const written = onOneLine(parts.map((it) => it.written).join(" "));
      put(found, key.replaceAll("-", "_"), known ? value : null, sign >= 0, { line: word.line, written });
    }
    return [found, positional];
  }

  const isMapping = (value) => value.replace(OUTER, "").startsWith("{");

  // An option as it stands there, name and value; empty where that is long.
  const onOneLine = (written) =>
    Array.from(written).length > WRITTEN || /#[^\n]*\n/.test(written) ? "" : written.replaceAll("\n", " ");

  /** What a JSON behind an option sets: `{"a": {"b": 1}}` → `a.b`. */
  function flat(text, line) {
    const found = new Map(), written = (key) => new RegExp(`"${key}"\\s*:\\s*(?:"[^"]*"|[^,}\\s]+)`).exec(text)?.[0] ?? "";
    const walk = (value, prefix, key) => {
      if (value !== null && typeof value === "object") for (const [name, it] of Object.entries(value)) walk(it, prefix ? `${prefix}.${name}` : name, name);
      else if (value !== null && prefix) found.set(prefix, { value: String(value), line, written: /^\w+$/.test(key) ? written(key) : "" });
    };
    try {
      walk(JSON.parse(text), "", "");
    } catch {
      throw new Unreadable("terminal", line); // YAML takes more than JSON
    }
    return found;
  }

  function put(found, key, value, signed, option) {
    if (value !== null && isMapping(value) && !names.configs.includes(key)) {
      for (const [inner, it] of flat(value, option.line)) found.set(`${key}.${inner}`, { ...option, value: it.value });
      return;
    }
    found.set(key, { ...option, value: value === "" && !signed ? "true" : value });
  }

  /** The stage of ZeRO that the name of a file tells, if it tells one. */
  function stageOf(path) {
    const name = base(path).toLowerCase();
    return name.includes("fsdp") ? undefined : names.stages.map((pattern) => new RegExp(pattern).exec(name)?.[1]).find(Boolean);
  }

  /** The files that it names: none is at hand. */
  function follow(launch, positional) {
    const { options, unread } = launch;
    const named = positional.map((word) => word.text).filter((text) => /\.(?:yaml|yml|json)$/.test(text));
    for (const key of names.configurations) if (options.get(key)?.value) named.push(options.get(key).value);
    unread.push(...named);
    launch.blind = named.length > 0;
    const file = options.get("launch.config_file");
    if (file?.value) unread.push(file.value);
    const stage = file && stageOf(file.value ?? "");
    if (stage) {
      preset(options, "deepspeed", { ...file, value: null });
      preset(options, "deepspeed.stage_by_name", { ...file, value: stage, written: "" });
    } else if (file) preset(options, "fsdp", { value: null, line: file.line }); // it may say FSDP, or anything else
    accelerate(launch);
    const nested = [...options].find(([key]) => key.startsWith("fsdp_config."));
    if (nested) preset(options, "fsdp_config", { ...nested[1], value: null, written: "" }); // it switches FSDP on
    for (const [key, meant] of Object.entries(names.aliases)) {
      const alias = options.get(key);
      if (alias && (alias.value ?? "").toLowerCase() !== "false") preset(options, meant, alias);
    }
    if (["null", "none", "None"].includes(options.get("deepspeed")?.value)) options.delete("deepspeed"); // as Hydra writes it
    const engine = options.get("train_engine"), other = Object.hasOwn(names.engines, engine?.value ?? "") && names.engines[engine.value];
    if (other) {
      for (const key of names.configs) options.delete(key);
      options.set(other, { ...engine, value: "true" });
    }
    for (const key of names.configs) {
      const option = options.get(key) || options.get(`launch.${key}`);
      if (!option?.value) continue;
      let inner = new Map();
      if (isMapping(option.value)) inner = flat(option.value, option.line);
      else if (/\.(?:json|conf|ya?ml)$/.test(option.value)) {
        unread.push(option.value);
        const named = stageOf(option.value);
        if (named) preset(options, "deepspeed.stage_by_name", { ...option, value: named, written: "" });
      } else continue;
      preset(options, "deepspeed", option);
      for (const [name, it] of inner) preset(options, `deepspeed.${name}`, it);
      if (inner.size) preset(options, "deepspeed.zero_optimization.stage", { value: "0", line: option.line });
    }
    const decided = names.configs.some((key) => options.has(key) && options.get(key).value !== "true"); // by a file
    if (options.has("zero_stage") && options.has("deepspeed") && !decided) preset(options, "deepspeed.zero_optimization.stage", options.get("zero_stage"));
    for (const { text } of positional) if (text.endsWith(".py")) unread.push(text);
  }

  /** What accelerate's options say, in the words of the others. */
  function accelerate(launch) {
    const { options } = launch, told = new Map();
    for (const [key, option] of options) if (key.startsWith("launch.")) told.set(key.slice(7), option);
    const kind = told.get("distributed_type");
    if (kind?.value) {
      const upper = kind.value.toUpperCase();
      if (Object.hasOwn(names.distributed, upper)) preset(options, names.distributed[upper], { value: "true", line: kind.line });
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

  // ---------------------------------------------------------------- facts.py

  const COMPARISON = new RegExp(`^(<=|>=|<|>)[${SPACE}]*(\\p{Nd}[${LETTER}.+-]*)$`, "u");
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
    const said = script.split(SPACES).filter(Boolean).join(" ");
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
        launch.command, [...launch.options.keys()], launch.frameworks, launch.processes === 1, launch.ranked, launch.blind, launch.unread,
        launch.frameworks.flatMap((name) => rules.stacks[name].launch.map(({ option }) => option && (launch.options.get(option)?.value ?? launch.options.has(option)))),
      ]);
      if (!answered.has(key)) answered.set(key, findings(launch));
      const name = names.settings.find((it) => launch.options.has(it)), told = launch.options.get(name);
      const written = told && (told.written || asOptions([[name, told.value || "..."]]));
      return answered.get(key).map(([it, world, tried]) => {
        const [change, fix, place] = world ? changeOf(launch, new Map([...versions, ...world]), tried, name) : [null, null, told || launch];
        return { ...it, line: place.line, option: told && place === told ? written : null, change, fix };
      });
    }

    /** Notes on incidents that the launch may meet: by an option of it, its words, its strategy, and the releases. */
    function signs(launch) {
      if (launch.processes === 1) return []; // two ranks showed it
      const values = [...launch.options.values()].map(({ value }) => value || "");
      const said = [launch.command, ...values].join("\n").toLowerCase();
      const meant = rules.signs.filter((sign) => !sign.frameworks.length || sign.frameworks.includes(launch.frameworks[0]));
      const shown = meant.map((sign) => [sign, shownBy(sign, launch, said)]).filter(([, name]) => name);
      if (!shown.length) return [];
      const facts = isReadable(launch) ? factsOf(launch, versions) : [];
      const known = new Map([["strategy", strategyOf(launch)], ...versions, ...facts]);
      return shown.flatMap(([{ where, text, id, runs }, name]) => {
        const absent = Object.keys(where).filter((each) => (known.get(each) ?? null) === null);
        const fitting = ([each, condition]) => (absent.includes(each) ? rules.versions.includes(each) : holds(condition, known.get(each)));
        if (!Object.entries(where).every(fitting)) return [];
        const { line, written, value } = launch.options.get(name);
        const finding = { level: "note", code: id, what: text[language], page: page(`incidents/${id}/`), runs, wrong: false };
        const option = written || asOptions([[name, value || "..."]]);
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
      const told = rules.stacks.transformers.launch.filter((rule) => rule.option && "strategy" in rule.facts && rule.without !== "python.accelerator");
      for (const option of ["python.ddp", "launch.multi_gpu"]) told.push({ option, facts: { strategy: "ddp" } });
      if (launch.options.get("launch.distributed_type")?.value?.toUpperCase() === "MULTI_GPU") told.push({ facts: { strategy: "ddp" } });
      return ofCommand(launch.command, told, versions, launch.options).get("strategy");
    }

    function findings(launch) {
      const judged = new Map(), [worlds, tried] = worldsOf(launch);
      for (const world of worlds) {
        let verdict = verdictOf(launch, new Map([...versions, ...world]));
        if (launch.processes === 1 && verdict && ![names.one_rank, "not-covered"].includes(verdict.code)) verdict = null; // two ranks showed it
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
      if (!launch.frameworks.length) return uncovered(say(hasOptions(launch) ? "not-trainer" : "no-option"));
      if (launch.blind) return uncovered(say("elsewhere", launch.unread.join(", ")));
      if (!hasOptions(launch)) return uncovered(say("no-option"));
      const facts = factsOf(launch, known);
      if (!facts.has("strategy")) return uncovered(say("strategy") + (launch.unread.length ? say("absent", launch.unread.join(", ")) : ""));
      if (!facts.has("checkpointing")) {
        const told = new Map([...known, ...facts]);
        const rule = rulesOf(launch).find((it) => "checkpointing" in it.facts && isGiven(it, launch.options) !== false && launch.command.includes(it.text ?? "") && fits(it.where ?? {}, told) !== false);
        const value = launch.options.get(rule?.option)?.value;
        return uncovered(rule?.option ? say("checkpointing-by", rule.option + (value && value !== "true" ? ` ${value}` : "")) : say("checkpointing"));
      }
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
      const where = bad.map(([use, told]) => say("case", useOf(use, told, known), kinds(told))).join(say("next"));
      const what = say("depends", say(right.get("once") ? "once" : "mixed"), where);
      const wrong = bad.some(([, told]) => told.some(([label]) => label === "diverge"));
      return verdictWith("note", "depends", what, page(`decision/#${strategy}-${bad[0][0]}`), runs, wrong);
    }

    /** A use of modules; with it what the runs that do not train right have in common and the launch does not tell. */
    function useOf(name, told, known) {
      const text = rules.uses[name].text[language];
      const asked = new Set(told.flatMap(([, , { when }]) => (when ? [when[language]] : [])));
      if (asked.size !== 1 || told.every(([, , { path }]) => path.every(([fact]) => known.has(fact)))) return text;
      return say("use", text, ...asked);
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
      const asked = new Map(), conditions = [], least = new Map();
      // The releases that brought an option that the launch is given.
      for (const { package: name, options_since: since } of launch.frameworks.map((it) => rules.stacks[it])) {
        for (const [option, release] of Object.entries(since)) if (launch.options.has(option)) least.set(name, release);
      }
      for (const { where = {} } of rulesOf(launch)) if (!Array.isArray(where)) conditions.push(...Object.entries(where));
      if (String(factsOf(launch, versions).get("strategy")).startsWith("zero")) {
        for (const cell of rules.cells) for (const part of cell.parts) for (const [name, condition] of part.path) conditions.push([name, condition]);
      }
      for (const [name, condition] of conditions) {
        if (!rules.versions.includes(name) || versions.has(name)) continue;
        if (!asked.has(name)) asked.set(name, new Set());
        for (const [, bound] of bounds(condition)) asked.get(name).add(bound);
      }
      const tried = new Map([...asked].filter(([, found]) => found.size).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, found]) => {
        const all = [OLDEST, ...[...found].sort(older)].filter((it) => !least.has(name) || older(it, least.get(name)) >= 0);
        return [name, all.length ? all : [least.get(name)]];
      }));
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
        return ["add", asOptions(settings), option || launch];
      }
      return [null, null, option || launch];
    }

    function isAsked({ package: name, since, before }, known, tried) {
      const release = known.get(name || "");
      if (release === OLDEST) return since === null || older(since, tried.get(name)[1]) < 0;
      return release === undefined || ((!since || holds(`>= ${since}`, release)) && (!before || holds(`< ${before}`, release)));
    }

    function switchedOff(name, { value, written }) {
      const key = name.split(".").at(-1).replaceAll("_", "[-_]");
      const match = new RegExp(`${key}\\W+(\\w+)`, "d").exec(written);
      if (!match || match[1] !== value || !Object.hasOwn(names.switched, value)) return asOptions([[name, "false"]]);
      const [start, end] = match.indices[1];
      return written.slice(0, start) + names.switched[value] + written.slice(end);
    }

    /** Names and values as the options of a command. */
    function asOptions(settings) {
      return settings.map(([name, value]) => {
        const [key, inner] = name.split(".");
        return `--${key} ${inner ? `'{"${inner}": ${value}}'` : value}`;
      }).join(" ");
    }

    return { of, signs };
  }

  /** What there is to say of a text: how many launches it holds, how many of them start more than one process, the findings; or why it cannot be read. */
  function lint(rules, text, language, versions = {}) {
    names = rules.names;
    try {
      const asked = judge(rules, language, new Map(Object.entries(versions)));
      const found = launches(rules, text.replace(/^\ufeff+/, ""));
      return {
        launches: found.length,
        several: found.filter((launch) => launch.processes !== 1).length,
        findings: found.flatMap((launch) => [...asked.of(launch), ...asked.signs(launch)]),
      };
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      return { launches: 0, several: 0, findings: [], unreadable: rules.words[error.key][language], line: error.line };
    }
  }

  return { lint };
}
