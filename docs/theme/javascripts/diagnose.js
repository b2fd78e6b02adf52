/* The engine of the page Diagnose: scripts/readyonce/diagnose.py once more, for a browser. Pure functions, no page, no
   network. One function holds everything, so that its own text can be handed to a worker.

   A log is handled as a string with one character for each byte, so that positions and limits are those of Python. */

// biome-ignore lint/correctness/noUnusedVariables: diagnose-page.js calls it
function readyonceEngine() {
  "use strict";

  const REACH = 1500, HEAD = 8, NEXT = 9, TRIES = 16, AROUND = 3, NEAR = 4096, SHOWN = 2000;
  const TYPED_IN = 64 << 10, LEAD = 40, PART_OF = 20, BETWEEN = 120;
  const encoder = new TextEncoder();
  const decoder = new TextDecoder("windows-1252"); // one character for each byte
  const bytes = (text) => decoder.decode(encoder.encode(text));

  const COLOUR = /\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)?|\^?\[\[?[0-9;]{1,8}m/g;
  const SPACES = new RegExp(["\u00a0", "\u3000", "\u200b", "\ufeff", "\u2502"].map(bytes).join("|"), "g");
  const QUOTES = new RegExp(["\u2018", "\u2019", "\u201c", "\u201d"].map(bytes).join("|"), "g");
  const TIME = "[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?";
  const PREFIX = new RegExp(
    "^(?:[ \\t>#|]" +
      "|\\[(?:rank|default)[0-9]{1,5}\\]:?" +
      "|\\[[0-9]{1,4},[0-9]{1,5}\\]<std(?:out|err)>:?" +
      "|\\([A-Za-z_]{1,40} pid=[0-9]{1,9}[^)\\n]{0,60}\\)" +
      "|\\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]" + TIME + "\\]?(?: -)?" +
      "|\\[?" + TIME + "\\]?" +
      "|\\[?(?:INFO|WARNING|ERROR|CRITICAL)\\]?(?=[ :-]):?(?: -)?" +
      "|[0-9]{1,4}:(?=[ \\t])" +
      "|[A-Za-z0-9_.-]{1,40} {1,4}\\|" +
      "|E {2,8})+"
  );
  const isDeleted = (code) => code <= 32 || code === 34 || code === 39 || code === 96 || code === 127;
  const ALL_DELETED = /[\x00-\x20"'`\x7f]+/g;
  const EXCEPTION = /^[A-Za-z0-9_.]{0,120}(?:Error|Exception|Interrupt|Expired|Timeout)(?::|$)/;
  const ENDINGS = ["Error", "Exception", "Interrupt", "Expired", "Timeout"]; // quicker to look for than EXCEPTION
  const TYPED = /[A-Za-z0-9_.]{0,120}(?:Error|Exception|Warning)(?::[ \t]*|\(["'])$/;
  const LISTED = /^(?:[-+]|\*{1,2}|[0-9]{1,2}[.)]|Q[0-9]{0,3}[:.])$/;
  const STRING = /^[bfruBFRU]{0,2}(["'])/;
  // A frame of a traceback, as Python and as IPython print it, without white space; and one that only hands on what it was given.
  const FRAME = /,line[0-9]|(?<=\.py):[0-9]{1,6},in/g;
  const HANDS_ON = "torch/nn/functional.py";
  const COLON = new RegExp(`:|${bytes("：")}`, "g");
  const CLOSING = new RegExp(`(?:[.,:;!?]|${["。", "，", "！", "？", "…"].map(bytes).join("|")})+$`);
  const WORD = /(?<![A-Za-z0-9_])[a-z]{2,20}(?![A-Za-z0-9_])/g;

  const squeeze = (text) => text.replace(ALL_DELETED, "");
  const literals = (texts = []) => texts.map((text) => squeeze(bytes(text)));
  const isBlank = (letter) => letter === " " || letter === "\t";

  function withoutEnd(text) {
    let end = text.length;
    while (end && isBlank(text[end - 1])) end--;
    return text.slice(0, end);
  }

  // ---------------------------------------------------------------- rules

  const bareTitle = (title) => squeeze(bytes(title)).replace(CLOSING, "");

  function load(data) {
    // What shows the strategy that a wording names, or denies it, counts as its own.
    const marks = ({ strategy }) => data.strategies[strategy] || { any: [], none: [] };
    const wordings = data.families.flatMap((family) =>
      family.wordings.map((wording) => ({
        family: family.family,
        yields: family.yields,
        all: literals(wording.all),
        none: literals(wording.none),
        needs: literals([...(wording.needs || []), ...marks(wording).any]),
        without: literals([...(wording.without || []), ...marks(wording).none]),
        frame: literals(wording.frame),
        bare: Boolean(wording.bare),
        quotes: /^["'`]*/.exec(wording.all[0])[0].length,
        typed: EXCEPTION.test(literals(wording.all)[0]),
      }))
    );
    return {
      data,
      wordings,
      told: wordings.filter(
        ({ needs, frame, bare, all }) => !needs.length && (bare || !frame.length) && !all[0].startsWith("assert")
      ),
      titles: [
        ...data.families.map(({ family, title }) => [family, bareTitle(title)]),
        ...data.incidents
          .filter(({ errors }) => errors.length)
          .flatMap(({ errors, titles }) => titles.map((title) => [errors[0], bareTitle(title)])),
      ],
      looks: data.incidents.flatMap(({ id, look }) =>
        look.map(({ all, none, why }) => ({ id, why, wording: { all: literals(all), none: literals(none) } }))
      ),
      families: new Map(data.families.map((family) => [family.family, family])),
      launcher: literals(data.launcher),
      launcherErrors: literals(data.launcherErrors),
      consequences: literals(data.consequences),
      progress: literals(data.progress),
      guides: data.guides.map(bytes),
      notes: data.notes.map(bytes),
      remarks: data.remarks.map(bytes),
    };
  }

  // ---------------------------------------------------------------- matching

  function formOf(text) {
    const form = { prefixes: [], pieces: [], lines: [], starts: [], quoting: null };
    const bodies = [];
    let at = 0;
    text = text.replace(COLOUR, "").replace(SPACES, " ").replace(QUOTES, '"');
    text.split("\n").forEach((raw, index) => {
      for (let piece of raw.includes("\r") ? raw.split("\r") : [raw]) {
        const prefix = PREFIX.exec(piece);
        if (prefix) piece = piece.slice(prefix[0].length);
        const body = squeeze(piece);
        if (body) {
          form.prefixes.push(prefix ? prefix[0] : "");
          form.pieces.push(piece);
          form.lines.push(index + 1);
          form.starts.push(at);
          bodies.push(body);
          at += body.length;
        }
      }
    });
    form.text = bodies.join("");
    form.runs = runsOf(form.text);
    form.heads = new Map(); // where each first stands: many literals begin alike
    return form;
  }

  /** Which runs of four letters a text has. Most literals have one that it lacks, and are not looked for. */
  function runsOf(text) {
    const runs = new Uint8Array(1 << 16);
    for (let at = 0, run = 0; at < text.length; at++) runs[(run = nextRun(run, text.charCodeAt(at)))] = 1;
    return runs;
  }

  const nextRun = (run, letter) => ((run << 4) ^ letter) & 0xffff; // after four more letters nothing is left of one

  function indexOf(form, literal) {
    for (let at = 0, run = 0; at < literal.length; at++) {
      run = nextRun(run, literal.charCodeAt(at));
      if (at > 2 && !form.runs[run]) return -1;
    }
    return form.text.indexOf(literal);
  }

  /** How many of the sorted `values` are below `limit`. */
  function below(values, limit) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < limit) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  const pieceAt = (form, position) => below(form.starts, position + 1) - 1;

  function indexWithin(text, wanted, low, high) {
    const at = text.slice(low, high).indexOf(wanted);
    return at < 0 ? -1 : low + at;
  }

  function find(form, literal, low, high, tries) {
    const head = literal.slice(0, HEAD);
    if (!form.heads.has(head)) form.heads.set(head, indexOf(form, head));
    const first = form.heads.get(head);
    if (first < 0 || first >= high) return null;
    const next = (from) => {
      if (from <= first) return first + head.length <= high ? first : -1;
      return high >= form.text.length ? form.text.indexOf(head, from) : indexWithin(form.text, head, from, high);
    };
    for (let at = next(low); at >= 0 && tries; at = next(at + 1), tries--) {
      const end = extend(form, literal, at);
      if (end) return [at, end];
    }
    return null;
  }

  function extend(form, literal, at) {
    const text = form.text;
    let done = 0;
    for (;;) {
      while (at < text.length && done < literal.length && text[at] === literal[done]) {
        at++;
        done++;
      }
      if (done === literal.length) return at;
      const line = below(form.starts, at);
      if (form.starts[line] !== at) return 0;
      const resumed = resume(form, literal, done, line);
      if (!resumed) return 0;
      [at, done] = resumed;
    }
  }

  function resume(form, literal, done, line) {
    for (const start of form.starts.slice(line, line + NEXT)) {
      for (let lost = 0; lost < 4; lost++) {
        const rest = literal.slice(done + lost, done + lost + HEAD);
        if (!rest || (lost && !/^[A-Za-z]+$/.test(literal.slice(done, done + lost)))) break;
        // A few letters could stand anywhere: they must begin the line.
        const at = indexWithin(form.text, rest, start, start + rest.length + (rest.length > 3 ? 48 : 0));
        if (at >= 0) return [at, done + lost];
      }
    }
    return null;
  }

  function match(form, wording, low) {
    for (;;) {
      const first = find(form, wording.all[0], low, form.text.length, -1);
      if (!first) return null;
      let [start, end] = first;
      const whole = wording.all.slice(1).every((literal) => {
        const found = find(form, literal, end, end + REACH, TRIES);
        if (found) end = found[1];
        return found;
      });
      if (whole) {
        const unwanted = (literal) => find(form, literal, Math.max(0, start - 300), end + 800, TRIES);
        if (!wording.none.some(unwanted)) return [start, end];
      }
      low = start + 1;
    }
  }

  /** Whether the frame nearest above the text is one that the wording names. */
  function inItsFrame(form, wording, start) {
    if (!wording.frame.length) return true;
    const above = form.text.slice(Math.max(0, start - REACH), start);
    const heads = [...above.matchAll(FRAME)].map(({ index }) => index);
    while (heads.length > 1 && above.slice(0, heads.at(-1)).endsWith(HANDS_ON)) heads.pop();
    if (!heads.length) return wording.bare;
    const frame = above.slice(Math.max(0, above.slice(0, heads.at(-1)).lastIndexOf("File")));
    return wording.frame.some((literal) => frame.includes(literal));
  }

  /** Whether the text only speaks of the error: a guide, source code, a list of changes. */
  function mentioned(form, rules, wording, start, end) {
    const index = pieceAt(form, start);
    if (!form.quoting || form.quoting.index !== index) form.quoting = quotingOf(form, rules, index);
    const quoting = form.quoting, piece = form.pieces[index], lead = quoting.lead;
    const before = offsetIn(quoting, start - form.starts[index]);
    let behind = "";
    if (pieceAt(form, end - 1) === index) {
      const last = rawOffset(piece, before, end - 1 - start);
      behind = piece.slice(last + 1, last + 1 + NEAR);
    }
    const next = behind.slice(0, 200);
    if (quoting.spoken <= before || rules.remarks.some((remark) => next.includes(remark))) return true;
    let bare = piece.slice(Math.max(lead, before - NEAR), before);
    const ends = before - bare.length;
    bare = withoutEnd(bare);
    const first = piece.slice(lead, Math.min(ends + bare.length, lead + NEAR));
    if (first.startsWith("raise ") || first.startsWith("warnings.warn(")) return true;
    if (wording.quotes) bare = withoutEnd(bare.slice(0, -wording.quotes));
    const typed = TYPED.exec(bare.slice(-160));
    if (!typed && inString(quoting, ends + bare.length)) return true;
    if (typed) {
      bare = withoutEnd(bare.slice(0, bare.length - typed[0].length));
      if (/["']$/.test(typed[0])) return false;
    }
    if (LISTED.test(bare)) return true; // an item of a list
    if (/["'`]$/.test(bare)) return quoted(withoutEnd(bare.slice(0, -1)), bare.slice(-1), behind, Boolean(typed) || wording.typed);
    const clause = bare.slice(-400).split(/[:\])]/).pop();
    return !typed && /^[A-Z]/.test(wording.all[0]) && (clause.match(WORD) || []).length >= 2;
  }

  /** The families whose title or text this piece is a part of, and nothing besides. */
  function partOf(form, rules, index) {
    const start = form.starts[index];
    const whole = form.text.slice(start, Math.min(form.starts[index + 1] ?? form.text.length, start + 401));
    if (whole.length < 14 || whole.length > 400) return [];
    const starts = [...whole.slice(0, LEAD + 3).matchAll(COLON)].map((colon) => colon.index + colon[0].length);
    for (const from of [0, ...starts]) {
      if (from > LEAD || /[(=]/.test(whole.slice(0, from))) break;
      const body = whole.slice(from).replace(CLOSING, "");
      const titled = (fits) => rules.titles.filter(([, title]) => fits(title)).map(([family]) => family);
      const names = new Set(titled((title) => title === body));
      if (!names.size && body.length >= PART_OF) {
        for (const family of titled((title) => title.includes(body))) names.add(family);
        for (const { all, family } of rules.told) if (isPart(body, all)) names.add(family);
      }
      if (names.size) {
        const other = names.size > 3 || writtenOf(form, rules, index) || ofAnotherCause(form, rules, index, names);
        return other ? [] : [...names].sort();
      }
    }
    return [];
  }

  /** Whether the piece holds a whole text of these families, where its frame or what stands near denies it. */
  function ofAnotherCause(form, rules, index, names) {
    return rules.wordings.some((wording) => {
      const found = names.has(wording.family) ? match(form, { ...wording, none: [] }, form.starts[index]) : null;
      if (!found || pieceAt(form, found[0]) !== index) return false;
      return String(match(form, wording, found[0])) !== String(found) || !inItsFrame(form, wording, found[0]);
    });
  }

  /** Whether a guide, a list or source code says it. */
  function writtenOf(form, rules, index) {
    const piece = form.pieces[index], bare = piece.replace(/^[ \t]+/, "");
    return (
      quotingOf(form, rules, index).spoken <= piece.length ||
      rules.remarks.some((remark) => piece.includes(remark)) ||
      LISTED.test(/^[ \t\n\r\v\f]*([^ \t\n\r\v\f]*)/.exec(piece)[1]) ||
      (form.pieces.length > 1 && STRING.test(bare))
    );
  }

  /** Whether a text ends inside a wording, and begins in it; between two literals there may be a name or a number. */
  function isPart(body, all) {
    const joined = all.join("");
    if (joined.includes(body)) return true;
    if (all.length < 2) return false;
    const at = body.indexOf(all[1].slice(0, HEAD));
    if (at < HEAD || !joined.slice(all[0].length).startsWith(body.slice(at))) return false;
    const begun = all[0].indexOf(body.slice(0, HEAD)), known = begun < 0 ? "" : all[0].slice(begun);
    return known !== "" && body.startsWith(known) && at - known.length <= BETWEEN;
  }

  /** A piece that quotes errors, and what is asked of it for each: there may be thousands on one line. */
  function quotingOf(form, rules, index) {
    const piece = form.pieces[index];
    const above = form.pieces.slice(Math.max(0, index - 2), index).map((piece) => piece.slice(-400)).join(" ");
    const whole = form.prefixes[index].includes("##") || rules.guides.some((guide) => above.includes(guide)); // ##: a heading
    let spoken = piece.length + 1; // from here on it only speaks of errors
    for (const word of [...rules.guides, ...rules.notes]) {
      const at = piece.indexOf(word);
      if (at >= 0) spoken = Math.min(spoken, at + word.length);
    }
    let lead = 0;
    while (isBlank(piece[lead])) lead++;
    const string = STRING.exec(piece.slice(lead, lead + 4));
    const quote = string ? string[1] : null, opened = string ? lead + string[0].length : 0;
    return { index, piece, spoken: whole ? 0 : spoken, lead, quote, opened, letters: 0, offset: 0, counted: lead, odd: false };
  }

  /** Where letter number `letters` stands: from the last one asked for, the next is near. */
  function offsetIn(quoting, letters) {
    if (letters < quoting.letters) quoting.letters = quoting.offset = 0;
    quoting.offset = rawOffset(quoting.piece, quoting.offset, letters - quoting.letters);
    quoting.letters = letters;
    return quoting.offset;
  }

  /** Whether the piece begins with a string that is still open at `end`. */
  function inString(quoting, end) {
    if (!quoting.quote || end < quoting.opened) return false;
    const to = Math.max(quoting.counted, end);
    for (let at = Math.min(quoting.counted, end); at < to; at++) {
      if (quoting.piece[at] === quoting.quote) quoting.odd = !quoting.odd;
    }
    quoting.counted = end;
    return quoting.odd;
  }

  function quoted(opener, quote, behind, typed) {
    if (/["']:$/.test(opener)) return false;
    if (!typed || /[(,=[]$/.test(opener)) return true;
    const closing = new RegExp(`${quote}(?![A-Za-z0-9_])`).exec(behind);
    return Boolean(closing) && /[A-Za-z0-9\u0080-\uffff]/.test(behind.slice(closing.index + 1));
  }

  /** Where the letter stands that comes `letters` after the first one at `offset` or behind it. */
  function rawOffset(piece, offset, letters) {
    for (; offset < piece.length; offset++) {
      if (!isDeleted(piece.charCodeAt(offset)) && !letters--) return offset;
    }
    return piece.length;
  }

  // ---------------------------------------------------------------- what a log holds

  function read(rules, text) {
    const form = formOf(text);
    const has = (literal) => indexOf(form, literal) >= 0;
    const found = { form, hits: new Map(), error: null, cause: null, explained: new Set(), launcher: null, rank: null };
    found.has = has;
    for (const wording of rules.wordings) {
      if ((!wording.needs.length || wording.needs.some(has)) && !wording.without.some(has)) {
        lookFor(rules, form, wording, found);
      }
    }
    for (const index of piecesWith(form, ENDINGS)) {
      const start = form.starts[index];
      const body = form.text.slice(start, Math.min(form.starts[index + 1] ?? form.text.length, start + 200));
      if (EXCEPTION.test(body) && !rules.launcherErrors.some((name) => body.includes(name))) {
        const line = form.lines[index];
        if (found.explained.has(line)) continue;
        if (found.error === null || line < found.error) found.error = line;
        const follows = rules.consequences.some((literal) => body.includes(literal));
        if (!follows && (found.cause === null || line < found.cause)) found.cause = line;
      }
    }
    const places = rules.launcher.map((literal) => indexOf(form, literal)).filter((at) => at >= 0);
    if (places.length) {
      found.launcher = form.lines[pieceAt(form, Math.min(...places))];
      found.rank = firstRank(form.text);
    }
    found.progress = rules.progress.some(has);
    return found;
  }

  /** The pieces in which one of the `words` begins. */
  function piecesWith(form, words) {
    const pieces = new Set();
    for (const word of words) {
      for (let at = indexOf(form, word); at >= 0; ) {
        const index = pieceAt(form, at);
        pieces.add(index);
        at = index + 1 < form.starts.length ? form.text.indexOf(word, form.starts[index + 1]) : -1;
      }
    }
    return pieces;
  }

  function lookFor(rules, form, wording, found) {
    for (let low = 0, at; (at = match(form, wording, low)); low = at[0] + 1) {
      const [start, end] = at;
      if (!inItsFrame(form, wording, start)) continue;
      const first = form.lines[pieceAt(form, start)];
      const last = Math.min(form.lines[pieceAt(form, end - 1)], first + 50);
      for (let line = first; line <= last; line++) found.explained.add(line);
      if (!mentioned(form, rules, wording, start, end)) {
        const old = found.hits.get(wording.family);
        if (!old || first < old.line) found.hits.set(wording.family, { line: first, family: wording.family, yields: wording.yields });
        return;
      }
    }
  }

  function firstRank(text) {
    const at = text.indexOf("RootCause");
    const rank = at < 0 ? null : /rank:([0-9]{1,6})/.exec(text.slice(at, at + 400));
    return rank ? rank[1] : null;
  }

  const inOrder = (a, b) => a.line - b.line || (a.family < b.family ? -1 : 1);

  function verdict(found) {
    const first = (kind) => [...found.hits.values()].filter(({ yields }) => yields === kind).sort(inOrder)[0];
    let hit = first(null);
    if (hit) return { ...hit };
    hit = first("consequence");
    if (hit && !(found.cause && found.cause < hit.line)) return { ...hit };
    if (found.launcher && !found.error) return { family: null, line: found.launcher, launcher: true };
    hit = first("warning");
    if (hit && !(found.error || found.launcher || found.progress)) return { ...hit };
    return { family: null, line: found.error };
  }

  /** Words that belong to an error without being a whole one: { line, names }; only where nothing else is found. */
  function part(rules, found, data) {
    const { error } = found, typedIn = data.length <= TYPED_IN;
    if (!typedIn && !error) return null;
    const rows = typedIn ? [] : around(data, error);
    const form = typedIn ? found.form : formOf(rows.map(([, row]) => row).join("\n")), above = typedIn ? 0 : rows[0][0] - 1;
    for (let index = 0; index < form.lines.length; index++) {
      const line = form.lines[index] + above;
      if (error && line > error) return null;
      if ((!typedIn && line !== error) || found.explained.has(line)) continue;
      const names = partOf(form, rules, index);
      if (names.length) return { line, names };
    }
    return null;
  }

  /** `log`: a string, or the bytes of a file. Returns what `readyonce diagnose --format json` prints, and more for people. */
  function diagnose(rules, log, file, language) {
    const data = typeof log === "string" ? bytes(log) : decoder.decode(log);
    const note = !/[^ \t\n\r\v\f]/.test(data) ? "empty" : data.slice(0, 8192).includes("\0") ? "binary" : null;
    const found = read(rules, note ? "" : data);
    const { family, launcher, ...winning } = verdict(found);
    const words = family === null && !launcher && !note ? part(rules, found, data) : null;
    const line = words ? words.line : winning.line;
    const kind = launcher ? "wrapper-only" : words ? "fragment" : family === null ? "unknown" : rules.families.get(family).page === "own" ? "known" : "look-alike";
    const own = kind === "known";
    const code = kind === "unknown" && !note && !found.error && data.length <= TYPED_IN;
    const look = code ? lookIn(rules, found.form, language) : [];
    const ranked = rules.data.incidents
      .filter((incident) => own && incident.errors.includes(family))
      .map((incident) => {
        const seen = incident.hints.filter((hint) => literals(hint.any).some(found.has));
        const weight = seen.reduce((sum, hint) => sum + hint.weight, 0);
        return { id: incident.id, weight, why: seen.map((hint) => hint.why[language]) };
      })
      .sort((a, b) => b.weight - a.weight || (a.id < b.id ? -1 : 1));
    return {
      json: {
        file,
        kind,
        error: family,
        line: kind === "unknown" ? null : line,
        words_of: words ? words.names : [],
        also: [...found.hits.values()]
          .filter((hit) => hit.yields !== "warning" && hit.family !== family)
          .sort(inOrder)
          .map((hit) => ({ name: hit.family, line: hit.line })),
        incidents: ranked.map(({ id, why }) => ({ id, why })),
        look,
        fix: own ? fixOf(rules, family, ranked, found.has, language) : null,
      },
      line,
      rank: launcher ? found.rank : null,
      around: line ? around(typeof log === "string" ? log : new TextDecoder().decode(log), line) : [],
      note: note || (look.length ? "look" : kind === "unknown" && found.error && found.error === found.cause ? "not-covered" : null),
    };
  }

  /** What in code belongs to an incident without an error, the first place of each: where to look, no diagnosis. */
  function lookIn(rules, form, language) {
    const seen = new Map();
    for (const { id, why, wording } of rules.looks) {
      const found = seen.has(id) ? null : match(form, wording, 0);
      if (found) seen.set(id, { id, line: form.lines[pieceAt(form, found[0])], why: why[language] });
    }
    return [...seen.values()];
  }

  /** What to do first, as in the other engine: an incident's own fix, or the family's in each framework. */
  function fixOf(rules, family, ranked, has, language) {
    const known = rules.families.get(family), { frameworks } = rules.data;
    const seen = (texts) => literals(texts).some(has), of = (id) => rules.data.incidents.find((one) => one.id === id);
    const word = (value) => (value && typeof value === "object" ? value[language] : value);
    const stacks = frameworks.filter(({ logs }) => seen(logs)).map(({ name }) => name).reverse();
    if (ranked.length) {
      const best = of(ranked[0].id), own = seen(best.hints.filter(({ cause }) => cause).flatMap(({ any }) => any));
      if ((own && (best.stack === null || stacks.includes(best.stack))) || !known.fix) {
        const form = { stack: best.stack, setting: "checkpointing", versions: "", when: null, language: best.language, code: best.code, text: null, proof: "run" };
        return { incident: best.id, stack: best.stack, text: best.fix[language], forms: [form], questions: [] };
      }
    }
    const place = ({ name }) => (stacks.includes(name) ? stacks.indexOf(name) : stacks.length);
    const forms = [...frameworks].sort((a, b) => place(a) - place(b)).flatMap((framework) =>
      known.settings.flatMap((setting) => framework.forms.filter((form) => form.setting === setting)).map((form) => ({
        stack: framework.name, ...Object.fromEntries(Object.entries(form).map(([key, value]) => [key, word(value)])),
      }))
    );
    return { incident: null, stack: stacks[0] ?? null, text: word(known.fix) || "", forms, questions: known.questions.map(word) };
  }

  /** [form, whether it is shown in full]: all of the log's own framework, or of PyTorch; of each other the first. */
  function formsOf(fix) {
    const first = fix.stack ?? fix.forms[0]?.stack, own = fix.forms.filter(({ stack }) => stack === first), rest = new Map();
    for (const form of fix.forms) {
      if (form.stack !== first && form.setting === fix.forms[0].setting && !rest.has(form.stack)) rest.set(form.stack, form);
    }
    return [...own.map((form) => [form, true]), ...[...rest.values()].map((form) => [form, false])];
  }

  function headOf(data, say, form, fix, language) {
    let title = data.frameworks.find(({ name }) => name === form.stack).title[language];
    if (form.stack === fix.stack) title += say("brackets", say("in-log"));
    const also = form.setting === "find-unused" ? say("also") : null;
    return [title, form.versions, form.when, also, say(`proof-${form.proof}`)].filter(Boolean).join(say("comma"));
  }

  function around(text, line) {
    let from = 0;
    for (let skip = Math.max(1, line - AROUND); skip > 1; skip--) from = text.indexOf("\n", from) + 1;
    const rows = [];
    for (let number = Math.max(1, line - AROUND); number <= line + AROUND && from <= text.length; number++) {
      const end = text.indexOf("\n", from);
      rows.push([number, text.slice(from, Math.min(end < 0 ? text.length : end, from + SHOWN)).replace(/\r+$/, "")]);
      if (end < 0) break;
      from = end + 1;
    }
    return rows;
  }

  // ---------------------------------------------------------------- the answer as a comment

  function markdown(rules, told, language) {
    const { data } = rules, say = (key, ...values) => values.reduce((t, v) => t.replace("{}", () => v), data.words[key][language]);
    const prefix = data.site ? data.site + (language === "en" ? "/" : `/${language}/`) : null;
    const link = (text, path) => (prefix ? `[${text}](${prefix}${path})` : text);
    const { kind, error, line, incidents, words_of: wordsOf, also } = told.json;
    const lines = [], named = (name) => rules.families.get(name);
    if (kind === "wrapper-only") {
      const rank = told.rank === null ? "" : say("wrapper-rank", told.rank);
      lines.push(say("wrapper"), "", say("wrapper-up", rank), "", say("wrapper-file"));
    } else if (!error) {
      const key = kind === "fragment" ? kind : told.note || "not-known";
      const titles = wordsOf.map(named).map(({ title, path }) => link(`\`${title.replaceAll("`", "")}\``, path));
      lines.push(say(key, titles.join(say("or"))), "", say(`${key}-next`));
    } else {
      const family = rules.families.get(error);
      lines.push(`**${link(`\`${family.title}\``, family.path)}**${say("brackets", say("at-line", line))}`, "");
      const winning = told.around.find(([number]) => number === line);
      if (winning) {
        const shown = Array.from(winning[1].trim()).slice(0, 300).join("");
        const fence = "`".repeat(Math.max(3, ...(shown.match(/`+/g) || []).map((run) => run.length + 1)));
        lines.push(`${fence}text`, shown, fence, "");
      }
      if (kind === "look-alike") lines.push(say("look-alike"), "");
      lines.push(family.text[language]);
      if (incidents.length) {
        lines.push("", say("incidents") + say("colon").trimEnd(), "");
        for (const { id, why } of incidents) {
          const incident = data.incidents.find((one) => one.id === id);
          lines.push(`- ${link(`${id} · ${incident.short[language]}`, `incidents/${id}/`)}${say("colon")}${why.join(say("semicolon")) || say("nothing")}`);
        }
      }
      if (told.json.fix) lines.push("", ...steps(data, say, told.json.fix, language));
      if (incidents.length) {
        lines.push("", `${say("cases")}${say("colon")}${link(`errors/${error}`, `${family.path}#cases`)}`);
      }
    }
    for (const { id, line, why } of told.json.look) {
      const incident = data.incidents.find((one) => one.id === id);
      lines.push("", `- ${link(`${id} · ${incident.short[language]}`, `incidents/${id}/`)}${say("brackets", say("at-line", line))}${say("colon")}${why}`);
    }
    if (also.length) {
      lines.push("", say("also-known") + say("colon").trimEnd(), "");
      for (const { name, line } of also) {
        lines.push(`- ${link(`\`${named(name).title}\``, named(name).path)}${say("brackets", say("at-line", line))}`);
      }
    }
    return [...lines, "", `<sub>ReadyOnce. ${say("footer")}</sub>`, ""].join("\n");
  }

  function steps(data, say, fix, language) {
    const first = fix.incident === null ? say("fix") : say("first") + say("brackets", fix.incident);
    const lines = [`**${first}**${say("colon")}${fix.text}`];
    let folded = false;
    for (const [form, whole] of formsOf(fix)) {
      if (!whole && !folded) lines.push("", `<details><summary>${say("stacks")}</summary>`);
      folded = folded || !whole;
      if (fix.incident === null) lines.push("", `**${headOf(data, say, form, fix, language)}**`);
      if (form.code) lines.push("", `\`\`\`${form.language}`, form.code, "```");
      if (form.text && (whole || !form.code)) lines.push("", form.text);
    }
    if (folded) lines.push("", "</details>");
    if (fix.questions.length) lines.push("", ...fix.questions.map((question, index) => `${index + 1}. ${question}`));
    return lines;
  }

  return { load, diagnose, markdown, formsOf, headOf };
}
