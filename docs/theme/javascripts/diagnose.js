/* The engine of the page Diagnose: scripts/readyonce/diagnose/engine.py once more, for a browser. Pure functions, no page, no
   network. One function holds everything, so that its own text can be handed to a worker.

   `matching` is that of the rules: patterns, words and limits, which both engines have from scripts/readyonce/diagnose/matching.toml.

   A log is handled as a string with one character for each byte, so that positions and limits are those of Python. */

// biome-ignore lint/correctness/noUnusedVariables: diagnose-page.js calls it
function readyonceEngine(matching) {
  "use strict";

  const { WHOLE, REACH, HEAD, NEXT, TRIES, AROUND, NEAR, SHOWN, TYPED_IN, LEAD, PART_OF, BETWEEN, DIGITS, LEADING, QUOTED } = matching.limits;
  const { ENDINGS, ENTITIES, HANDS_ON } = matching.words;
  const encoder = new TextEncoder();
  const decoder = new TextDecoder("windows-1252"); // one character for each byte
  const bytes = (text) => decoder.decode(encoder.encode(text));
  const BYTE = new Map(Array.from(decoder.decode(Uint8Array.from({ length: 256 }, (_, byte) => byte)), (letter, byte) => [letter, byte]));

  const pattern = (name, flags) => new RegExp(bytes(matching.patterns[name]), flags);
  const atStart = (name) => new RegExp(`^(?:${bytes(matching.patterns[name])})`);
  const anyOf = (words) => new RegExp(words.map(bytes).join("|"), "g");
  const SPACES = anyOf(matching.words.SPACES), QUOTES = anyOf(matching.words.QUOTES);
  const COLOUR = pattern("COLOUR", "g");
  const ENTITY = pattern("ENTITY", "g");
  const PREFIX = atStart("PREFIX");
  const EXCEPTION = atStart("EXCEPTION");
  const NAME = pattern("NAME", "g");
  const WORD = atStart("WORD");
  const COMPLAINT = atStart("COMPLAINT");
  const SENTENCE = pattern("SENTENCE");
  const LEVELS = pattern("LEVELS");
  const CODE = pattern("CODE");
  const PROSE = pattern("PROSE", "g");
  const CLAUSE = pattern("CLAUSE");
  const SENTENCE_END = pattern("SENTENCE_END");
  const SOFT = pattern("SOFT");
  const SAYS = pattern("SAYS");
  const RANK = pattern("RANK");
  const JSON_STRING = atStart("JSON_STRING");
  const LOGGED = pattern("LOGGED", "g");
  const BAR = pattern("BAR");
  const TYPED = pattern("TYPED");
  const LISTED = atStart("LISTED");
  const STRING = atStart("STRING");
  const OPEN = pattern("OPEN");
  const COLON = pattern("COLON", "g");
  const CUT = pattern("CUT", "g");
  const FRAME = pattern("FRAME", "g");
  const SECTION = atStart("SECTION");
  const MARK = pattern("MARK");
  const CLOSING = pattern("CLOSING");
  const UNSEEN = pattern("UNSEEN", "g");
  const isDeleted = (code) => code <= 32 || code === 34 || code === 39 || code === 96 || code === 127;
  const ALL_DELETED = /[\x00-\x20"'`\x7f]+/g;

  const squeeze = (text) => text.replace(ALL_DELETED, "");
  const encoded = (text) => Uint8Array.from(text, (letter) => BYTE.get(letter));
  const decoded = (text) => new TextDecoder("utf-8").decode(encoded(text)).replace(UNSEEN, "").replace(/^ +| +$/g, "");
  const literals = (texts = []) => texts.map((text) => squeeze(bytes(text)));
  const lower = (text) => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
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
      consequences: literals(data.consequences),
      progress: literals(data.progress),
      unset: literals(data.unset),
      guides: data.guides.map(bytes),
      notes: data.notes.map(bytes),
      remarks: data.remarks.map(bytes),
      sections: Object.fromEntries(Object.entries(data.sections).map(([key, texts]) => [key, literals(texts).map(lower)])),
    };
  }

  // ---------------------------------------------------------------- matching

  /** Without HTML entities. */
  function plain(text) {
    return text.replace(ENTITY, (entity, name) => {
      if (!name.startsWith("#")) return ENTITIES[name];
      const code = /^#[xX]/.test(name) ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1));
      return code === 160 ? " " : code >= 32 && code < 127 ? String.fromCharCode(code) : entity;
    });
  }

  function formOf(text) {
    const form = { prefixes: [], pieces: [], lines: [], starts: [], quoting: null };
    const bodies = [];
    let at = 0;
    text = plain(text).replace(COLOUR, "").replace(SPACES, " ").replace(QUOTES, '"');
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

  const bodyOf = (form, index, limit = 200) => {
    const start = form.starts[index];
    return form.text.slice(start, Math.min(form.starts[index + 1] ?? form.text.length, start + limit));
  };
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
    if (quoting.spoken <= before || quoting.explained || rules.remarks.some((remark) => next.includes(remark))) return true;
    let bare = piece.slice(Math.max(lead, before - NEAR), before);
    const ends = before - bare.length;
    bare = withoutEnd(bare);
    const first = piece.slice(lead, Math.min(ends + bare.length, lead + NEAR));
    if (first.startsWith("raise ") || first.startsWith("warnings.warn(")) return true;
    if (wording.quotes) bare = withoutEnd(bare.slice(0, -wording.quotes));
    const typed = TYPED.exec(bare.slice(-160));
    if (!typed && (inString(quoting, ends + bare.length) || OPEN.test(bare.slice(-200)))) return true;
    if (typed) {
      bare = withoutEnd(bare.slice(0, bare.length - typed[0].length));
      if (/["']$/.test(typed[0])) return false;
    }
    if (LISTED.test(bare)) return true; // an item of a list
    if (/["'`]$/.test(bare)) return quoted(withoutEnd(bare.slice(0, -1)), bare.slice(-1), behind, Boolean(typed) || wording.typed);
    const clause = bare.slice(-400).split(CLAUSE).pop();
    return !typed && !wording.typed && /^[A-Z]/.test(wording.all[0]) && (clause.match(PROSE) || []).length >= 2;
  }

  /** { name, words, heading }: of the section that this piece begins, the first words in it, whether it is marked as a heading. */
  function sectionAt(form, index) {
    const found = SECTION.exec(form.pieces[index]);
    if (!found) return null;
    const heading = form.prefixes[index].includes("#") || MARK.test(found[1]);
    if (!heading && found[3].search(COLON) < 0) return null;
    const behind = form.pieces[index].slice(found[0].length);
    return { name: lower(squeeze(found[2])).replace(/[0-9.]+$/, ""), words: lower(squeeze(behind).slice(0, 80)), heading };
  }

  /** Whether the next section tells the cause or the remedy: who writes so explains an error and reports none. */
  function explainedBelow(form, rules, index) {
    const { complaints, remedies, unsolved } = rules.sections, { starts } = form;
    let plain = false;
    for (let at = Math.max(0, index - AROUND); at < index; at++) plain = plain || complaints.includes(sectionAt(form, at)?.name);
    for (let at = index + 1; at < starts.length && starts[at] <= starts[index + 1] + REACH; at++) {
      const section = sectionAt(form, at);
      if (!section) continue;
      if (remedies.includes(section.name) && (section.heading || plain || section.name.charCodeAt(0) > 127)) {
        let { words } = section;
        if (!words && at + 1 < starts.length && !sectionAt(form, at + 1)?.heading) words = lower(bodyOf(form, at + 1));
        if (words && !unsolved.some((word) => words.startsWith(word))) return true;
      } else if (section.heading) return false;
    }
    return false;
  }

  /** [the exception that this piece says was raised, whose rank it is by what stands before it on the line], or null. */
  function exceptionIn(form, rules, index) {
    const piece = form.pieces[index];
    // In a JSON object a whole traceback may stand in one string.
    const parts = /^[ \t]*\{/.test(piece) ? piece.slice(0, 16 << 10).split("\\n").slice(0, 64) : [piece];
    for (const [number, whole] of parts.entries()) {
      const part = whole.slice(0, LEADING + 2 * QUOTED);
      for (const name of part.slice(0, LEADING).matchAll(NAME)) {
        const before = withoutEnd(part.slice(0, name.index)), text = part.slice(name.index);
        if (WORD.test(text) || !raised(before, text, rules)) continue;
        const own = number || before.endsWith('"') ? JSON_STRING.exec(text)[0] : before.endsWith("`") ? text.split("`")[0] : text;
        const rank = RANK.exec(form.prefixes[index] + before);
        return [decoded(own.slice(0, QUOTED)), rank ? (rank[1] ?? rank[2]) : null];
      }
    }
    return null;
  }

  /** The same for a sentence behind a word for an error, where no exception is named. */
  function complaintIn(form, rules, index) {
    const piece = form.pieces[index], prefix = form.prefixes[index], word = COMPLAINT.exec(piece);
    const said = piece.slice(word ? word[0].length : 0).slice(0, QUOTED);
    if (!(word || LEVELS.test(prefix)) || !SENTENCE.test(said) || SOFT.test(said) || said.startsWith("=")) return null;
    if (writtenOf(form, rules, index)) return null;
    const rank = RANK.exec(prefix);
    return [decoded(piece.slice(0, QUOTED)), rank ? (rank[1] ?? rank[2]) : null];
  }

  /** { line, said } of the first sentence behind a word for an error; null where training went on. */
  function complaint(rules, found) {
    for (let index = 0; index < found.form.lines.length && !found.progress; index++) {
      const said = complaintIn(found.form, rules, index);
      if (said) return { line: found.form.lines[index], said };
    }
    return null;
  }

  /** Whether an exception that begins `text` was raised, by what stands before it on its line. */
  function raised(before, text, rules) {
    if (!before) return true;
    const spoken = (word) => before.includes(word);
    if (CODE.test(before.slice(-40)) || LISTED.test(before) || rules.guides.some(spoken) || rules.notes.some(spoken)) return false;
    if (/["'`]$/.test(before)) return !quoted(withoutEnd(before.slice(0, -1)), before.slice(-1), text, true);
    if (SOFT.test(before.slice(-400))) return false; // it speaks of something that may be missing
    const sentence = before.slice(-400).split(SENTENCE_END).pop(); // nothing, where a colon stands before the exception
    return (sentence.match(PROSE) || []).length < 2 || SAYS.test(sentence);
  }

  /** The families whose title or text this piece is a part of, and nothing besides. */
  function partOf(form, rules, index) {
    const whole = bodyOf(form, index, 401);
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
      (form.pieces.length > 1 && (form.prefixes[index].includes("#") || STRING.test(bare)))
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
    const explained = !form.prefixes[index].includes("#") && explainedBelow(form, rules, index); // not where each line has such a mark
    return { index, piece, spoken: whole ? 0 : spoken, explained, lead, quote, opened, letters: 0, offset: 0, counted: lead, odd: false };
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
    const set = rules.unset.reduce((text, option) => text.replaceAll(option, ""), form.text); // an option that is not set is no clue
    const has = (literal) => set.includes(literal);
    const found = { form, hits: new Map(), error: null, cause: null, explained: new Set(), said: new Map(), mentions: new Map(), launcher: null, rank: null };
    found.has = has;
    for (const wording of rules.wordings) {
      if ((!wording.needs.length || wording.needs.some(has)) && !wording.without.some(has)) {
        lookFor(rules, form, wording, found);
      }
    }
    for (const index of [...piecesWith(form, ENDINGS)].sort((a, b) => a - b)) {
      const said = exceptionIn(form, rules, index), line = form.lines[index];
      if (!said || rules.data.launcherErrors.some((name) => said[0].includes(name))) continue;
      if (!found.said.has(line)) found.said.set(line, said);
      if (found.explained.has(line)) continue;
      if (found.error === null || line < found.error) found.error = line;
      const follows = rules.consequences.some((literal) => bodyOf(form, index).includes(literal));
      if (!follows && (found.cause === null || line < found.cause)) found.cause = line;
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
      if (mentioned(form, rules, wording, start, end)) {
        found.mentions.set(wording.family, Math.min(found.mentions.get(wording.family) ?? first, first));
      } else {
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
    return { family: null, line: found.cause ?? found.error };
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

  /** Errors that a short text only speaks of: { line, names }; where nothing else is found, or not before them. */
  function mention(found, data) {
    if (data.length > TYPED_IN) return null;
    const error = found.cause ?? found.error;
    const spoken = [...found.mentions].map(([family, line]) => ({ family, line })).filter(({ line }) => !error || line <= error).sort(inOrder);
    return spoken.length ? { line: spoken[0].line, names: spoken.slice(0, 3).map(({ family }) => family) } : null;
  }

  /** An exception of no known family: its words, whose rank it is, of which class it is, and where to look next. */
  function exceptionOf(rules, [text, rank], language) {
    const squeezed = squeeze(bytes(text)), { classes } = rules.data;
    const found = classes.find(({ any }) => literals(any).some((mark) => squeezed.includes(mark))) ?? classes.at(-1);
    return { text, rank, class: found.class, next: found.next[language] };
  }

  /** What finds one of these words in a line of small letters; `…` is up to 60 bytes of anything. */
  function saidIn(words) {
    const pattern = (word) => (word === "…" ? ".{0,60}?" : bytes(word).replace(/[^\w\x80-\xff]/g, "\\$&"));
    const each = words.map((text) => text.toLowerCase().split(/\s+/).map(pattern).join("[ \\t]*"));
    return new RegExp(`(?<![a-z])(?:${each.join("|")})`);
  }

  /** Words and logged numbers of training that goes wrong without an error, the first place of each: no diagnosis.
      The words stand in one line, with any white space between them, and no letter before them: `hangs` is not in "changs".
      `untold`: the text is short and holds no error, so that a word for a failure says that one is missing. */
  function silent(rules, form, language, untold) {
    const pieces = form.pieces.map(lower), logged = loggedIn(form);
    return rules.data.silent.flatMap((sign) => {
      if (sign.failing && !untold) return [];
      const pattern = sign.any.length ? saidIn(sign.any) : null, at = pattern ? pieces.findIndex((piece) => pattern.test(piece)) : -1;
      const said = at < 0 ? [] : [at];
      const named = logged.filter(({ name }) => sign.numbers.includes(name));
      const lines = [...said.map((index) => form.lines[index]), ...named.map(({ values }) => runOf(values, sign)).filter(Boolean)];
      return lines.length ? [{ line: Math.min(...lines), text: sign.text[language], page: sign.page }] : [];
    });
  }

  /** { name, values }: of each name and rank by itself, and of each step of a progress bar the first alone. A value is its
      text, its line, and whether a bar shows it. */
  function loggedIn(form) {
    const series = new Map();
    form.pieces.forEach((piece, index) => {
      for (const { 1: whole, 2: loss, 3: norm, 5: text } of lower(piece).matchAll(LOGGED)) {
        const rank = RANK.exec(form.prefixes[index] + piece.slice(0, 80));
        const name = loss ? "loss" : norm ? "grad_norm" : "learning_rate", key = JSON.stringify([whole, rank ? rank[0] : "", name]);
        if (!series.has(key)) series.set(key, { name, values: [], step: null });
        const own = series.get(key), bar = BAR.exec(piece.slice(0, NEAR));
        if (bar && own.step === bar[1]) continue;
        own.step = bar ? bar[1] : null;
        own.values.push([text, form.lines[index], Boolean(bar)]);
      }
    });
    return [...series.values()];
  }

  /** The line in which so many numbers in a row begin that are among those of a sign, or all the same where it names none. */
  function runOf(logged, sign) {
    const number = (text) => ({ nan: Number.NaN, inf: Infinity, "-inf": -Infinity })[text] ?? Number(text);
    let length = 0, before = null;
    for (const [at, [text, , bar]] of logged.entries()) {
      const value = number(text);
      if (sign.values.length) length = sign.values.some((other) => value === number(other) || (Number.isNaN(value) && other === "nan")) ? length + 1 : 0;
      // A bar may show an old value again, and few digits are often the same.
      else if (bar || text.replace(/e.*|[^0-9]/g, "").replace(/^0+/, "").length < DIGITS) length = 0;
      else length = length && text === before ? length + 1 : 1;
      before = text;
      if (length >= sign.times) return logged[at + 1 - length][1];
    }
    return null;
  }

  /** `log`: a string, or the bytes of a file. Returns what `readyonce diagnose --format json` prints, and more for people. */
  function diagnose(rules, log, file, language) {
    const data = typeof log === "string" ? bytes(log) : decoder.decode(log);
    const note = !/[^ \t\n\r\v\f]/.test(data) ? "empty" : data.slice(0, 8192).includes("\0") ? "binary" : null;
    const found = read(rules, note ? "" : data);
    const { family, launcher, ...winning } = verdict(found);
    const unclaimed = family === null && !launcher && !note, whole = unclaimed ? part(rules, found, data) : null;
    const spoken = unclaimed && !whole ? mention(found, data) : null, words = whole || spoken;
    let line = words ? words.line : winning.line;
    const kind = launcher ? "wrapper-only" : words ? "fragment" : family === null ? "unknown" : rules.families.get(family).page === "own" ? "known" : "look-alike";
    const own = kind === "known";
    let exception = kind === "unknown" && line ? exceptionOf(rules, found.said.get(line), language) : null;
    const open = kind === "unknown" && !note && !exception && data.length <= WHOLE;
    const look = open && data.length <= TYPED_IN ? lookIn(rules, found.form, language) : [];
    const saying = open && !look.length ? complaint(rules, found) : null;
    const frames = open && !look.length ? [...found.form.text.matchAll(CUT)] : [];
    const untold = data.length <= TYPED_IN && !(found.progress || saying || frames.length > 1);
    const signs = open && !look.length ? silent(rules, found.form, language, untold) : [];
    const sentence = signs.length ? null : saying;
    if (sentence) {
      line = sentence.line;
      exception = exceptionOf(rules, sentence.said, language);
    }
    // A traceback without its last line.
    const cut = !signs.length && !sentence && frames.length > 1;
    if (cut) line = found.form.lines[pieceAt(found.form, frames.at(-1).index)];
    const ranked = rules.data.incidents
      .filter((incident) => (own || kind === "look-alike") && incident.errors.includes(family))
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
        line,
        words_of: words ? words.names : [],
        also: [...found.hits.values()]
          .filter((hit) => hit.yields !== "warning" && hit.family !== family)
          .sort(inOrder)
          .map((hit) => ({ name: hit.family, line: hit.line })),
        incidents: ranked.map(({ id, why }) => ({ id, why })),
        look,
        fix: own ? fixOf(rules, family, ranked, found.has, language) : null,
        exception,
        silent: signs,
      },
      line,
      rank: launcher ? found.rank : null,
      around: line ? around(typeof log === "string" ? log : new TextDecoder().decode(log), line) : [],
      note: note || (spoken ? "mention" : exception ? "not-covered" : look.length ? "look" : signs.length ? "silent" : cut ? "cut" : null),
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
    const other = known.elsewhere;
    if (other && seen(other.any) && !seen(other.none)) {
      return { incident: null, stack: stacks[0] ?? null, text: word(other.text), forms: [], questions: known.questions.map(word) };
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
      const key = told.note || (kind === "fragment" ? kind : "not-known");
      const titles = wordsOf.map(named).map(({ title, path }) => link(`\`${title.replaceAll("`", "")}\``, path));
      lines.push(say(key, titles.join(say("or"))), "", say(`${key}-next`, told.json.exception?.next ?? ""));
      if (key === "not-known") {
        lines.push("", ...data.doors.map(({ text, page }) => `- ${link(text[language], page.replace("#", "/#"))}`));
      }
      if (line) lines.push("", say("at-line", line) + say("colon").trimEnd(), "", ...quote(told));
    } else {
      const family = rules.families.get(error);
      lines.push(`**${link(`\`${family.title}\``, family.path)}**${say("brackets", say("at-line", line))}`, "");
      lines.push(...quote(told), "");
      if (kind === "look-alike" && !incidents.length) lines.push(say("look-alike"), "");
      lines.push(adviceOf(say, family, language));
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
    for (const { line, text, page } of told.json.silent) {
      lines.push("", `- ${text}${say("brackets", say("at-line", line))}`, "", `  ${say("more")}${say("colon")}${link(`\`${page}\``, page.replace("#", "/#"))}`);
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

  /** What an error means and what to do, and whether a run here showed it. */
  function adviceOf(say, { text, run }, language) {
    return run ? text[language] : `${text[language]}${language === "en" ? " " : ""}${say("not-run")}`;
  }

  /** The line that decided, as a block: an exception's own words where it is one of no known family. */
  function quote({ json, line, around }) {
    const [, row] = around.find(([number]) => number === line) || [0, ""];
    const shown = Array.from(json.exception ? json.exception.text : row.trim()).slice(0, 300).join("");
    const fence = "`".repeat(Math.max(3, ...(shown.match(/`+/g) || []).map((run) => run.length + 1)));
    return [`${fence}text`, shown, fence];
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

  return { load, diagnose, markdown, adviceOf, formsOf, headOf };
}
