// What a terminal would show of a log: \r replaces the line, colours are shown (vendor/anser.js reads them), every other escape
// is left out, and marks that turn text around or hide it are written as what they are. Makes text nodes and spans, never HTML.
"use strict";
class Terminal {
  // In turn: what ends a line, goes back in it, styles, commands, texts for the terminal itself, other escapes, plain text.
  static TOKEN = new RegExp(
    [
      "\\n",
      "[\\r\\b]",
      "\\x1b\\[[0-?]*[ -/]*[@-~]",
      "\\x1b\\][^\\x07\\x1b\\n]*(?:\\x07|\\x1b\\\\)?",
      "\\x1b[PX^_][^\\x07\\x1b]*(?:\\x07|\\x1b\\\\)?",
      "\\x1b[ -/]*[0-~]?",
      "[^\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f]+",
    ].join("|"),
    "g",
  );
  static PENDING = /\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?|[PX^_][^\x07\x1b]*\x1b?|[ -/]*)?$/; // may go on in the next piece
  static HIDDEN = /[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
  static STYLE = /\x1b\[[\d;]*m/g;
  static LONGEST_ESCAPE = 4096; // letters; what is longer is none

  constructor() {
    this.rest = "";
    this.line = ""; // with its styles
    this.fresh = false; // what comes next replaces the line
    this.colours = new Anser();
  }

  // Gives {done, open}: fragments of the lines that are finished now, and of the one that is not. Without more to come `last`.
  write(text, last = false) {
    text = this.rest + text;
    const pending = last ? null : text.match(Terminal.PENDING);
    this.rest = pending && pending[0].length <= Terminal.LONGEST_ESCAPE ? pending[0] : "";
    if (this.rest) text = text.slice(0, -this.rest.length);
    let done = "";
    for (const [token] of text.matchAll(Terminal.TOKEN)) {
      if (token === "\n") {
        done += this.line + "\n";
        this.line = "";
        this.fresh = false;
      } else if (token === "\r") {
        this.fresh = true;
      } else if (token === "\b") {
        this.line = this.line.replace(/[^\x1b]((?:\x1b\[[\d;]*m)*)$/u, "$1");
      } else if (token[0] === "\x1b") {
        this.escape(token);
      } else {
        if (this.fresh) this.clear();
        this.line += token.replace(Terminal.HIDDEN, (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
      }
    }
    const finished = this.draw(done, this.colours);
    return { done: finished, open: this.draw(this.line, Object.assign(new Anser(), this.colours, { decorations: [...this.colours.decorations] })) };
  }

  escape(token) {
    if (!token.startsWith("\x1b[")) return;
    if (token.endsWith("m")) {
      const style = token.replace(/([34]8):2:\d*:(\d+:\d+:\d+)/g, "$1:2:$2").replaceAll(":", ";");
      if (/^\x1b\[[\d;]*m$/.test(style)) this.line += style;
    } else if (/^\x1b\[[12]K$/.test(token)) {
      this.clear();
    }
  }

  // The line's text goes, its styles stay.
  clear() {
    this.line = (this.line.match(Terminal.STYLE) ?? []).join("");
    this.fresh = false;
  }

  draw(text, colours) {
    const made = document.createDocumentFragment();
    if (!text) return made;
    // An unknown style first: Anser gives the text before the first style none, also where one goes on.
    for (const part of colours.ansiToJson(`\x1b[999m${text}`, { use_classes: true, remove_empty: true })) {
      if (!part.fg && !part.bg && !part.decorations.length) {
        made.append(part.content);
        continue;
      }
      const span = document.createElement("span");
      span.textContent = part.content;
      for (const decoration of new Set(part.decorations)) span.classList.add(`ansi-${decoration}`);
      Terminal.paint(span, "color", part.fg, part.fg_truecolor, "");
      Terminal.paint(span, "background-color", part.bg, part.bg_truecolor, "-bg");
      made.append(span);
    }
    colours.decorations = [...new Set(colours.decorations)];
    return made;
  }

  static paint(span, property, name, exact, ending) {
    if (!name) return;
    const palette = name.match(/^ansi-palette-(\d+)$/);
    if (palette) span.style.setProperty(property, Terminal.of256(Number(palette[1])));
    else if (name === "ansi-truecolor") span.style.setProperty(property, `rgb(${exact})`);
    else span.classList.add(name + ending);
  }

  // xterm's: a cube of 6 × 6 × 6 from 16 on, then 24 greys.
  static of256(index) {
    if (index > 231) return `rgb(${Array(3).fill(8 + 10 * (index - 232)).join(", ")})`;
    const step = (number) => (number % 6 ? 55 + 40 * (number % 6) : 0);
    const rest = index - 16;
    return `rgb(${step(Math.floor(rest / 36))}, ${step(Math.floor(rest / 6))}, ${step(rest)})`;
  }
}
