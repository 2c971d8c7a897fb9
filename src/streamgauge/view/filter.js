"use strict";
// The filter of a list of runs; the same rules as query.py, which describes them.
const filter = (() => {
  const LONGEST = 1000;
  const FREE = ["run", "stream", "learner", "seed", "status"];
  const TERM = /^(-?)(?:([^\s"=<>!:]+)(:|!=|<=|>=|=|<|>))?("[^"]*"|[^\s"]*)(?=\s|$)/;
  const text = (value) => (value === null || value === undefined ? "" : String(value));
  const number = (value) => {
    if (typeof value === "number") return value;
    if (typeof value === "boolean") return NaN;
    return /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(value) ? Number(value) : NaN;
  };
  const like = (found, pattern) => number(found) === number(pattern) || new RegExp(`^${pattern.toLowerCase().split("*")
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("[^]*")}$`).test(found.toLowerCase());

  function resolved(name, known) {
    if (!name) return "";
    const full = [name, `stream.${name}`, `protocol.${name}`].find((each) => known.has(each));
    if (!full) throw new Error(`No run has a setting '${name}'.`);
    return full;
  }

  function parse(given, names) {
    if (given.length > LONGEST) throw new Error(`A filter has at most ${LONGEST} characters.`);
    const known = new Set(names), terms = [];
    let rest = given.trim();
    while (rest) {
      const match = TERM.exec(rest);
      if (!match || !match[0]) throw new Error(`The filter cannot be read from '${rest.slice(0, 40)}' on.`);
      const [all, minus, name = "", sign = "", quoted] = match;
      const value = quoted.replace(/^"+|"+$/g, "");
      if (name && !value) throw new Error(`${name}${sign} needs a value in the filter.`);
      if ("<>".includes(sign[0]) && sign && Number.isNaN(number(value))) {
        throw new Error(`${name}${sign} needs a number in the filter, not '${value}'.`);
      }
      if (name || value) terms.push({ name: resolved(name, known), sign, value, inverted: minus !== "" });
      rest = rest.slice(all.length).trimStart();
    }
    return terms;
  }

  function plain(term, of) {
    const { name, sign, value } = term;
    if (!name) return FREE.map((each) => text(of(each))).join(" ").toLowerCase().includes(value.toLowerCase());
    const found = of(name);
    if (found === null || found === undefined) return false;
    if (sign === ":") return value.split(",").some((one) => like(text(found), one));
    const a = number(found), b = number(value);
    if (sign === "=" || sign === "!=") {
      const same = Number.isNaN(a) || Number.isNaN(b)
        ? text(found).toLowerCase() === value.toLowerCase() : a === b;
      return same === (sign === "=");
    }
    return { "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b }[sign];
  }

  // Whether a run matches; `of` gives its value of a name, null where it has none.
  const matches = (terms, of) => terms.every((term) => plain(term, of) !== term.inverted);
  return { parse, matches };
})();
