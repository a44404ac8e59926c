(() => {
  "use strict";
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const made = (name, text) => Object.assign(document.createElement(name), { type: "button", textContent: text });

  // ── light and dark ──
  const schemes = ["", "light", "dark"];
  const names = { "": "Scheme: as the system", light: "Scheme: light", dark: "Scheme: dark" };
  const scheme = byId("scheme");
  const paint = (chosen) => {
    if (chosen) root.dataset.scheme = chosen; else delete root.dataset.scheme;
    scheme.textContent = names[chosen];
  };
  const kept = { read: () => { try { return localStorage.getItem("migrator-scheme") || ""; } catch { return ""; } },
    write: (value) => { try { localStorage.setItem("migrator-scheme", value); } catch { /* a private window keeps nothing */ } } };
  paint(schemes.includes(kept.read()) ? kept.read() : "");
  scheme.hidden = false;
  scheme.addEventListener("click", () => {
    const next = schemes[(schemes.indexOf(root.dataset.scheme || "") + 1) % schemes.length];
    paint(next);
    kept.write(next);
  });

  // ── copying the command ──
  for (const button of document.querySelectorAll("[data-copies]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(byId(button.dataset.copies).textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  // ── sorting ──
  const collator = new Intl.Collator(undefined, { numeric: true });
  const valueOf = (row, place) => row.cells[place].dataset.value ?? row.cells[place].textContent.trim();
  const compares = {
    number: (a, b) => Number(a) - Number(b),
    text: (a, b) => collator.compare(a, b),
  };
  const sorts = new Map(); // what else is to be told of an order: by table
  const sortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      if (!head.dataset.sort) return;
      const button = made("button", head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending" || (!head.hasAttribute("aria-sort") && head.dataset.sort === "number");
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const compare = compares[head.dataset.sort];
        const order = (rows) => {
          const keyed = rows.map((row) => [valueOf(row, place), row]);
          keyed.sort((a, b) => (down ? -1 : 1) * compare(a[0], b[0]));
          return keyed.map((pair) => pair[1]);
        };
        if (sorts.has(table)) sorts.get(table)(order);
        else table.tBodies[0].replaceChildren(...order([...table.tBodies[0].rows]));
      });
    });
  };
  for (const table of document.querySelectorAll("table.sortable")) sortable(table);

  // ── differences: a list of thousands, of which some hundreds are on the page ──
  const all = byId("all");
  if (all) {
    const CHUNK = 200;
    const body = all.tBodies[0];
    const words = (element) => element.textContent.toLowerCase();
    let rows = [...body.rows];
    const texts = new Map(rows.map((row) => [row, words(row)]));
    const groups = [...document.querySelectorAll(".group")];
    const kinds = [...byId("groups").tBodies[0].rows];
    const grouped = [...groups, ...kinds].map((element) => [element, words(element)]);
    const [find, byClass, byWhere, shown, more, everything] =
      ["find", "by-class", "by-where", "shown", "more", "everything"].map(byId);
    let found = rows;
    let limit = CHUNK;

    const fits = (element, text, asked) =>
      (!asked.kind || element.dataset.kind === asked.kind) &&
      (!asked.where || element.dataset.where === asked.where) &&
      asked.words.every((word) => text.includes(word));
    const asked = () => ({
      kind: byClass.value,
      where: byWhere.value,
      words: find.value.toLowerCase().split(/\s+/).filter(Boolean),
    });
    const render = () => {
      body.replaceChildren(...found.slice(0, limit));
      document.querySelector(".pager").hidden = found.length <= limit;
      more.textContent = `Show ${Math.min(CHUNK, found.length - limit)} more`;
      everything.textContent = `Show all ${found.length.toLocaleString("en")}`;
    };
    const filter = () => {
      const now = asked();
      found = rows.filter((row) => fits(row, texts.get(row), now));
      limit = CHUNK;
      let left = 0;
      for (const [element, text] of grouped) {
        element.hidden = !fits(element, text, now);
        if (!element.hidden && element.matches(".group")) left += 1;
      }
      shown.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} listed differences, ${left} of ${groups.length} kinds`;
      render();
    };
    const remember = () => {
      const said = new URLSearchParams();
      for (const [name, field] of [["q", find], ["class", byClass], ["where", byWhere]]) if (field.value) said.set(name, field.value);
      history.replaceState(null, "", said.size ? `#differences?${said}` : "#differences");
    };
    const recall = () => {
      const [, said] = location.hash.split("?");
      if (said === undefined) return;
      const given = new URLSearchParams(said);
      find.value = given.get("q") ?? "";
      byClass.value = given.get("class") ?? "";
      byWhere.value = given.get("where") ?? "";
      filter();
      byId("differences").scrollIntoView();
    };
    for (const field of [find, byClass, byWhere]) field.addEventListener("input", () => { filter(); remember(); });
    more.addEventListener("click", () => { limit += CHUNK; render(); });
    everything.addEventListener("click", () => { limit = Infinity; render(); });
    sorts.set(all, (order) => { rows = order(rows); filter(); });
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
      event.preventDefault();
      find.focus();
    });
    // A file of what is found, made of the table itself: the page needs no second copy of it, and no server.
    const heads = ["class", "where", "row_or_question", "item_or_difference"];
    const cells = (row) => [...row.cells].map((cell) => cell.textContent.trim().replace(/\s+/g, " "));
    // A spreadsheet would compute what begins like a formula.
    const field = (text) => `"${text.replace(/^(?=[=+\-@])/, "'").replaceAll('"', '""')}"`;
    const files = {
      csv: () => ["text/csv", [heads, ...found.map(cells)].map((line) => line.map(field).join(",")).join("\r\n")],
      json: () => ["application/json", JSON.stringify(found.map((row) => Object.fromEntries(cells(row).map((text, place) => [heads[place], text]))), null, 1)],
    };
    for (const button of document.querySelectorAll("[data-saves]")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        const [type, text] = files[button.dataset.saves]();
        const link = Object.assign(document.createElement("a"), { download: `differences.${button.dataset.saves}`, href: URL.createObjectURL(new Blob([text], { type })) });
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 60000);
      });
    }
    addEventListener("beforeprint", () => { body.replaceChildren(...found); });
    addEventListener("afterprint", render);
    addEventListener("hashchange", recall);
    // There is nowhere to send it to.
    document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
    document.querySelector(".filters").hidden = false;
    filter();
    recall();
  }

  // ── links to what is folded, and paper ──
  const unfold = () => {
    const target = location.hash && !location.hash.includes("?") ? byId(location.hash.slice(1)) : null;
    if (!target) return;
    target.hidden = false;
    for (let at = target; at; at = at.parentElement) if (at.matches("details")) at.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
  let folded = [];
  addEventListener("beforeprint", () => {
    // Of details with one name only one can be open.
    folded = [...document.querySelectorAll("details:not([open])")].map((one) => [one, one.getAttribute("name")]);
    folded.forEach(([one]) => { one.removeAttribute("name"); one.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach(([one, name]) => {
    one.open = false;
    if (name) one.setAttribute("name", name);
  }));
})();
