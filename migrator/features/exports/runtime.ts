type Maybe<T> = T | null | undefined;

type KeyValue = string | number;

type Item = Record<string, unknown>;

/** A value that cannot stand in a key, or a parameter that a pattern does not take. */
export class RefusedError extends RangeError {}

function text(...parts: Maybe<string>[]): string | undefined {
  return parts.some((part) => part === null || part === undefined) ? undefined : parts.join("");
}

function whole(value: Maybe<number>): string | undefined {
  if (value === null || value === undefined) return undefined;
  if (!Number.isSafeInteger(value)) throw new RefusedError("a key takes a whole number that JavaScript holds exactly");
  return String(value);
}

/** A number with the decimals of its column; nothing is 0, as migrator writes it. */
function fixed(value: Maybe<number>, decimals: number): string | undefined {
  if (value === null || value === undefined) return undefined;
  return value === 0 ? "0" : exactly(value, decimals);
}

function exactly(value: number, decimals: number): string {
  const written = (value + 0).toFixed(decimals);
  if (Number(written) !== value || Math.abs(value) > Number.MAX_SAFE_INTEGER) throw new RefusedError(`a key takes a number of at most ${decimals} decimals`);
  return written;
}

function padded(value: Maybe<number>, width: number, decimals: number): string | undefined {
  if (value === null || value === undefined) return undefined;
  const written = exactly(value, decimals);
  if (written.startsWith("-")) throw new RefusedError("a negative number cannot be padded to sort");
  if (written.length > width) throw new RefusedError(`the number is wider than the ${width} characters that its key has`);
  return written.padStart(width, "0");
}

/** The padded number; if it cannot be one, the next one up or down, or what sorts before or behind all. */
function bounded(value: Maybe<number>, width: number, decimals: number, up: boolean): string | undefined {
  if (value === null || value === undefined) return undefined;
  const step = 10 ** -decimals;
  const most = 10 ** (decimals ? width - decimals - 1 : width) - step;
  if (value < 0 && !up) return "-";
  if (value > most && up) return ":";
  const held = Math.min(Math.max(value, 0), most);
  const near = Number(held.toFixed(decimals));
  const moved = up && near < held ? near + step : !up && near > held ? near - step : near;
  return moved.toFixed(decimals).padStart(width, "0");
}

function truth(value: Maybe<boolean>): string | undefined {
  return value === null || value === undefined ? undefined : String(value);
}

function given<T>(value: Maybe<T>): T | undefined {
  return value === null ? undefined : value;
}

/** A date, or a date and time with or without a zone, as ISO 8601 in UTC: [date, time with 6 decimals, zone]. */
function moment(value: string): [string, string, string] {
  const found = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(?:[.,](\d{1,6})\d*)?)?(Z|[+-]\d\d(?::?\d\d)?)?)?$/.exec(value);
  if (!found) throw new RefusedError("not a date or a time as ISO 8601, such as 2026-06-10T14:32:00");
  const [, date = "", minutes = "00:00", seconds = "00", fraction = "", zone = ""] = found;
  const micros = fraction.padEnd(6, "0");
  const written = new Date(`${date}T${minutes}:${seconds}Z`);
  // JavaScript takes the 31st of February for a day of March.
  const isReal = !Number.isNaN(written.getTime()) && written.toISOString().startsWith(date) && date >= "0001";
  if (!isReal) throw new RefusedError("a date or a time that there is not");
  if (zone === "") return [date, `${minutes}:${seconds}.${micros}`, ""];
  const offset = zone === "Z" ? "Z" : `${zone.slice(0, 3)}:${zone.length > 3 ? zone.slice(-2) : "00"}`;
  const moved = new Date(`${date}T${minutes}:${seconds}${offset}`);
  const utc = Number.isNaN(moved.getTime()) ? "" : moved.toISOString();
  if (utc.length !== 24) throw new RefusedError("a time outside of the years 1 to 9999");
  return [utc.slice(0, 10), `${utc.slice(11, 19)}.${micros}`, "Z"];
}

function iso(value: Maybe<string>, form: string): string | undefined {
  if (value === null || value === undefined) return undefined;
  const [date, time, zone] = moment(value);
  const cut = form.startsWith("ms") ? time.slice(0, 12) : form === "" ? time : time.slice(0, 8);
  const written = `${date}T${cut}`;
  return (form.endsWith("basic") ? written.replace(/[-:]/g, "") : written) + zone;
}

/** How much of a time's text the first moments of a unit do not share. */
const CHARACTERS = { millisecond: 23, second: 19, hour: 13, day: 10, week: 10, month: 7, quarter: 7, year: 4 };

type Unit = keyof typeof CHARACTERS;

function bucket(value: Maybe<string>, unit: Unit): string | undefined {
  if (value === null || value === undefined) return undefined;
  const [date, time] = moment(value);
  if (unit === "week") return week(date);
  if (unit === "quarter") return `${date.slice(0, 4)}-Q${Math.ceil(Number(date.slice(5, 7)) / 3)}`;
  return `${date}T${time}`.slice(0, CHARACTERS[unit]);
}

/** Days since Monday. */
function weekday(day: string): number {
  return (new Date(`${day}T00:00:00Z`).getUTCDay() + 6) % 7;
}

/** The week of ISO 8601, which is of the year that its Thursday is of. */
function week(day: string): string {
  const thursday = new Date(Date.parse(`${day}T00:00:00Z`) + (3 - weekday(day)) * 86_400_000);
  const year = thursday.toISOString().slice(0, 4);
  const days = (thursday.getTime() - Date.parse(`${year}-01-01T00:00:00Z`)) / 86_400_000;
  return `${year}-W${String(Math.floor(days / 7) + 1).padStart(2, "0")}`;
}

function epoch(value: Maybe<string>, form: string): number | undefined {
  if (value === null || value === undefined) return undefined;
  const [date, time] = moment(value);
  return form === "ms" ? Date.parse(`${date}T${time.slice(0, 12)}Z`) : Date.parse(`${date}T${time.slice(0, 8)}Z`) / 1000;
}

function lower(value: Maybe<string>): string | undefined {
  return value?.toLowerCase();
}

function upper(value: Maybe<string>): string | undefined {
  return value?.toUpperCase();
}

function trimmed(value: Maybe<string>): string | undefined {
  return value?.replace(/^ +| +$/g, "");
}

function trimmedEnd(value: Maybe<string>): string | undefined {
  return value?.replace(/ +$/, "");
}

function mapped(value: Maybe<string>, entries: ReadonlyMap<string, string>): string | undefined {
  if (value === null || value === undefined) return undefined;
  const found = entries.get(value);
  if (found === undefined) throw new RefusedError("a value that the mapping's map does not list");
  return found;
}

function escaped(value: Maybe<string>, separator: string): string | undefined {
  if (value === null || value === undefined) return undefined;
  const coded = new Set([...separator, "%"]);
  const bytes = (char: string): string =>
    [...Buffer.from(char, "utf8")].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");
  return [...value].map((char) => (coded.has(char) ? bytes(char) : char)).join("");
}

function hash(value: Maybe<string>): string | undefined {
  if (value === null || value === undefined) return undefined;
  return createHash("sha256").update(value, "utf8").digest("hex").slice(0, 32);
}

function shard(value: Maybe<string>, count: number): string | undefined {
  if (value === null || value === undefined) return undefined;
  const digest = createHash("sha256").update(value, "utf8").digest();
  return shardText(Number(digest.readBigUInt64BE(0) % BigInt(count)), count);
}

function shardText(number: number, count: number): string {
  return String(number).padStart(String(count - 1).length, "0");
}

function descending(value: Maybe<string>): string | undefined {
  if (value === null || value === undefined) return undefined;
  if (/[^0-9:.TZWQ-]/.test(value)) throw new RefusedError("only a padded number or a date can be turned round");
  return value.replace(/\d/g, (digit) => String(9 - Number(digit)));
}

function each<T>(values: Maybe<readonly T[]>, change: (value: T) => Maybe<string>): Maybe<string>[] {
  return (values ?? []).map((value) => change(value));
}

function path(parts: readonly Maybe<string>[], separator: string): string | undefined {
  const written = text(...parts);
  if (parts.some((part) => part?.includes(separator))) throw new RefusedError("a part of a path holds the separator");
  return written === undefined ? undefined : parts.join(separator);
}

function at(parts: readonly Maybe<string>[], place: number): string | undefined {
  return parts[place - 1] ?? undefined;
}

function among(value: unknown, allowed: readonly unknown[]): boolean {
  const same = (one: unknown): boolean =>
    value === null || value === undefined
      ? one === null
      : typeof value === "boolean" || typeof one === "boolean"
        ? value === one
        : typeof value === "number"
          ? value === Number(one)
          : one !== null && String(value) === String(one);
  return allowed.some(same);
}

/** All attributes of an index entry, or none of them. */
function entry<T extends Record<string, Maybe<KeyValue>>>(holds: boolean, values: T): { [K in keyof T]?: NonNullable<T[K]> } {
  const there = holds && Object.values(values).every((value) => value !== null && value !== undefined && value !== "");
  return there ? (values as { [K in keyof T]: NonNullable<T[K]> }) : {};
}

function must<T extends KeyValue>(name: string, value: T | undefined): T {
  if (value === undefined || value === "") throw new RefusedError(`the key attribute ${name} lacks a value`);
  return value;
}

/** The geohash of a place in degrees. */
function geohash(latitude: Maybe<number>, longitude: Maybe<number>, length: number): string | undefined {
  if (latitude === null || latitude === undefined || longitude === null || longitude === undefined) return undefined;
  if (!(Math.abs(latitude) <= 90 && Math.abs(longitude) <= 180)) throw new RefusedError("the place is not on the earth");
  const range = { lat: [-90, 90] as [number, number], lng: [-180, 180] as [number, number] };
  let written = "";
  for (let letter = 0, isLng = true; letter < length; letter++) {
    let bits = 0;
    for (let bit = 0; bit < 5; bit++, isLng = !isLng) {
      const [low, high] = isLng ? range.lng : range.lat;
      const middle = (low + high) / 2;
      const above = (isLng ? longitude : latitude) >= middle;
      bits = bits * 2 + (above ? 1 : 0);
      range[isLng ? "lng" : "lat"] = above ? [middle, high] : [low, middle];
    }
    written += "0123456789bcdefghjkmnpqrstuvwxyz"[bits];
  }
  return written;
}

function cellDegrees(length: number): [number, number] {
  const bits = 5 * length;
  return [180 / 2 ** Math.floor(bits / 2), 360 / 2 ** (bits - Math.floor(bits / 2))];
}

/** The cell of a place and its neighbours, each once. */
function cellsAround(latitude: number, longitude: number, length: number): string[] {
  const [height, width] = cellDegrees(length);
  const middle = (value: number, least: number, step: number): number =>
    least + (Math.min(Math.floor((value - least) / step), Math.round(-2 * least / step) - 1) + 0.5) * step;
  const lat = middle(latitude, -90, height);
  const lng = middle(longitude, -180, width);
  const cells = new Set([geohash(lat, lng, length) as string]);
  for (const up of [-1, 0, 1]) {
    if (Math.abs(lat + up * height) >= 90) continue;
    for (const right of [-1, 0, 1]) {
      const turned = ((((lng + right * width + 180) % 360) + 360) % 360) - 180;
      cells.add(geohash(lat + up * height, turned, length) as string);
    }
  }
  return [...cells];
}

function shards(count: number): string[] {
  return Array.from({ length: count }, (_, number) => shardText(number, count));
}

/** One of an item's copies: each is read as often as the others. */
function anyOf(copies: string[]): string[] {
  return copies.slice(Math.floor(Math.random() * copies.length)).slice(0, 1);
}

/** The buckets of time from the one that holds `since` to the one that holds `until`. */
function bucketsBetween(since: string, until: string, unit: Unit): string[] {
  const first = bucket(since, "hour") as string;
  const last = bucket(until, unit) as string;
  const [year, month, day, hour] = [0, 5, 8, 11].map((from) => Number(first.slice(from, from + (from ? 2 : 4)))) as [number, number, number, number];
  const found: string[] = [];
  for (let step = 0; ; step++) {
    const months = { year: 12, quarter: 3, month: 1 }[unit as string];
    const days = { week: 7 * step - weekday(first.slice(0, 10)), day: step }[unit as string] ?? 0;
    const next = months ? Date.UTC(year, month - 1 + months * step, 1) : Date.UTC(year, month - 1, day + days, hour + (unit === "hour" ? step : 0));
    const begun = new Date(next).toISOString();
    const written = begun.length > 24 ? undefined : bucket(begun, unit);
    if (written === undefined || written > last) return found;
    if (step === 400) throw new RefusedError("more than 400 buckets of time between both; ask for a shorter time");
    found.push(written);
  }
}

const EARTH_RADIUS_M = 6_371_008.8;

function radians(degrees: number): number {
  return (degrees * Math.PI) / 180;
}

function distance(from: [number, number], to: [number, number]): number {
  const [lat, lng, endLat, endLng] = [...from, ...to].map(radians) as [number, number, number, number];
  const half = Math.sin((endLat - lat) / 2) ** 2 + Math.cos(lat) * Math.cos(endLat) * Math.sin((endLng - lng) / 2) ** 2;
  return 2 * EARTH_RADIUS_M * Math.asin(Math.sqrt(Math.min(1, half)));
}

/** The items within so many metres of a place, the nearest first. */
function nearest(items: Item[], key: readonly string[], from: [number, number], at: readonly [string, string], within: number, length: number): Item[] {
  const [height, width] = cellDegrees(length).map(radians) as [number, number];
  const across = Math.asin(Math.sin(width) * Math.max(0, Math.cos(radians(from[0]))));
  if (!(within > 0)) throw new RefusedError("the distance must be a number of metres above 0");
  if (within > EARTH_RADIUS_M * Math.min(height, across)) throw new RefusedError("nine cells do not reach that far");
  const placed = items
    .filter((item) => typeof item[at[0]] === "number" && typeof item[at[1]] === "number")
    .map((item) => ({ item, metres: distance(from, [item[at[0]] as number, item[at[1]] as number]) }))
    .filter(({ metres }) => metres <= within);
  placed.sort((one, other) => one.metres - other.metres || compared(one.item, other.item, key));
  return placed.map(({ item }) => item);
}

interface Condition {
  name: string;
  is: "=" | "begins_with" | "between" | ">=" | ">" | "<=" | "<";
  values: KeyValue[];
}

interface Filter {
  name: string;
  is: Condition["is"] | "exists" | "absent";
  values: unknown[];
}

interface Question {
  index?: string;
  hash: string;
  partitions: Record<string, KeyValue>[];
  /** null: no item can be meant. */
  sort?: Condition | null | undefined;
  /** Attributes by which items of several partitions are merged. */
  order: readonly string[];
  descending?: boolean;
  limit?: number | undefined;
  consistent?: boolean;
  filters?: Filter[];
}

type Page = { items: Item[]; next?: unknown };

/** By type of a parameter whether a value is one. */
const FITS: Record<string, (one: unknown) => boolean> = {
  boolean: (one) => typeof one === "boolean",
  integer: (one) => Number.isSafeInteger(one),
  number: (one) => typeof one === "number" && Math.abs(one) <= Number.MAX_SAFE_INTEGER && (one === 0 || Math.abs(one) >= 1e-130),
  text: (one) => typeof one === "string" && !/\p{Surrogate}/u.test(one),
  uuid: (one) => typeof one === "string" && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(one),
  date: (one) => typeof one === "string" && one.length === 10 && unlessRefused(() => moment(one)) !== undefined,
  timestamp: (one) => typeof one === "string" && unlessRefused(() => moment(one)) !== undefined,
};

/** Refuses a parameter that is not of its type: `text`, `text?` for an optional one, `text[]` for a list. */
function checkParams(params: object, types: Record<string, string>): void {
  for (const [name, type] of Object.entries(types)) {
    const value = (params as Item | null | undefined)?.[name];
    if (type.endsWith("?") && (value === null || value === undefined)) continue;
    const fits = FITS[type.replace(/\[\]|\?/g, "")] as (one: unknown) => boolean;
    const values = type.includes("[]") ? value : [value];
    if (!Array.isArray(values) || !values.every(fits)) throw new RefusedError(`${name}: the parameter must be of the type ${type}`);
  }
}

/** Two bounds that have parameters: none may be unset alone. */
function both<T>(name: string, values: (T | undefined)[]): (T | undefined)[] {
  if (values.filter((value) => value === undefined).length === 1) throw new RefusedError(`of ${name} one bound is set and the other is not; give both or neither`);
  return values;
}

/** Refuses a time that is more than the unit that its key holds of it. */
function refuseCut(params: object, units: Record<string, Unit>): void {
  for (const [name, unit] of Object.entries(units)) {
    const given = (params as Record<string, Maybe<string> | string[]>)[name];
    for (const value of Array.isArray(given) ? given : [given]) {
      if (value === null || value === undefined) continue;
      const [date, time] = moment(value);
      const isLate = (unit === "week" && weekday(date) > 0) || (unit === "quarter" && Number(date.slice(5, 7)) % 3 !== 1);
      const rest = `${date}T${time}`.slice(CHARACTERS[unit]);
      if (isLate || rest !== "0000-01-01T00:00:00.000000".slice(CHARACTERS[unit])) throw new RefusedError(`${name}: the key holds less of it`);
    }
  }
}

/** What is made, or undefined of a value that no row can have. */
function unlessRefused<T>(make: () => T): T | undefined {
  try {
    return make();
  } catch (error) {
    if (error instanceof RefusedError) return undefined;
    throw error;
  }
}

function bytesOf(value: KeyValue): number {
  return typeof value === "string" ? Buffer.byteLength(value) : 1;
}

/** The keys to ask, without those that no item can have. */
function keysOf<T>(elements: readonly T[], make: (element: T) => Record<string, KeyValue | undefined>): Record<string, KeyValue>[] {
  const keys: Record<string, KeyValue>[] = [];
  for (const element of elements) {
    const entries = Object.entries(unlessRefused(() => make(element)) ?? {});
    for (const [name, value] of entries) if (value === undefined) throw new RefusedError(`${name}: a parameter of the key is not set`);
    const key = Object.fromEntries(entries) as Record<string, KeyValue>;
    const sizes = Object.values(key).map((value) => bytesOf(value));
    if (sizes.length && sizes.every((size, place) => 0 < size && size <= (place ? 1024 : 2048))) keys.push(key);
  }
  return keys;
}

/** A condition on the sort key; undefined where a parameter of it is not given or all keys meet it, null where none can. */
function sortedBy(name: string, is: Condition["is"], make: () => (KeyValue | undefined)[]): Condition | null | undefined {
  const made = is === "=" || is === "begins_with" ? unlessRefused(make) : make();
  if (made === undefined) return null;
  if (made.some((value) => value === undefined)) return undefined;
  const values = made as KeyValue[];
  const last = values[values.length - 1];
  if (isReversed({ is, values }) || (last === "" && ["=", "between", "<=", "<"].includes(is))) return null;
  if (!canBe({ name, is, values }, 1024)) return null;
  if (values[0] !== "") return { name, is, values };
  return is === "between" ? { name, is: "<=", values: values.slice(1) } : undefined;
}

/** Whether a value of at most so many bytes can meet the condition; a range with a longer bound is refused. */
function canBe({ name, is, values }: Filter, most: number): boolean {
  const isLonger = values.some((value) => typeof value === "string" && bytesOf(value) > most);
  if (isLonger && is !== "=" && is !== "begins_with") throw new RefusedError(`a parameter makes a bound of ${name} longer than it can be (${most} bytes)`);
  return !isLonger && !isReversed({ is, values });
}

/** Whether nothing can lie between the bounds. */
function isReversed({ is, values }: { is: Filter["is"]; values: unknown[] }): boolean {
  const [low, high] = values;
  if (is !== "between" || values.some((value) => value === undefined || value === null)) return false;
  return typeof low !== typeof high || order(low, high) > 0;
}

/** As DynamoDB sorts: numbers by value, texts by their bytes in UTF-8. */
function order(one: unknown, other: unknown): number {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return Buffer.compare(Buffer.from(String(one)), Buffer.from(String(other)));
}

function compared(one: Item, other: Item, names: readonly string[]): number {
  for (const name of names) {
    const found = order(one[name], other[name]);
    if (found !== 0) return found;
  }
  return 0;
}

function limitOf(limit: Maybe<number>): number | undefined {
  if (limit === null || limit === undefined) return undefined;
  if (!Number.isSafeInteger(limit) || limit < 1) throw new RefusedError("the limit must be a whole number above 0");
  return Math.min(limit, 2 ** 31 - 1);
}

/** Whether an attribute meets a condition of the pattern's filter; one without a value is left out. */
function meets(value: unknown, is: Filter["is"], values: unknown[]): boolean {
  if (is === "exists" || is === "absent") return (value !== undefined) === (is === "exists");
  if (values.some((one) => one === undefined || one === null)) return true;
  const [first, second] = values;
  if (typeof value !== typeof first) return false;
  const found = order(value, first);
  switch (is) {
    case "=": return found === 0;
    case "begins_with": return typeof value === "string" && value.startsWith(String(first));
    case "between": return found >= 0 && order(value, second) <= 0;
    case ">=": return found >= 0;
    case ">": return found > 0;
    case "<=": return found <= 0;
    case "<": return found < 0;
  }
}

/** No tombstone, no control item, nothing that has expired and is not deleted yet. */
function isShown(item: Item): boolean {
  const expiry = TTL === undefined ? undefined : item[TTL];
  const isOwn = item[TYPE] === "_tombstone" || item[TYPE] === "_control";
  return !isOwn && !(typeof expiry === "number" && expiry <= Date.now() / 1000);
}

async function sideBySide<T, R>(pieces: readonly T[], work: (piece: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let start = 0; start < pieces.length; start += 8) {
    results.push(...(await Promise.all(pieces.slice(start, start + 8).map(work))));
  }
  return results;
}

/** The items of the answer, of all partitions in the order of the sort key, each once. */
async function ask(question: Question, page: (partition: KeyValue, next: unknown, size: number | undefined) => Promise<Page>): Promise<Item[]> {
  const { sort, filters = [] } = question;
  if (sort === null || !filters.every((filter) => canBe(filter, 400 * 1024))) return [];
  const fits = (item: Item): boolean => filters.every(({ name, is, values }) => meets(item[name], is, values));
  const read = async (key: Record<string, KeyValue>): Promise<Item[]> => {
    const partition = key[question.hash] as KeyValue;
    const found: Item[] = [];
    let next: unknown;
    let size = question.limit;
    do {
      const answer = await page(partition, next, size);
      found.push(...answer.items.filter((item) => isShown(item) && fits(item)));
      next = answer.next;
      // What was left out is paid for: a page twice as large costs one request less.
      size = size === undefined ? undefined : Math.min(size * 2, 2 ** 31 - 1);
    } while (next !== undefined && next !== null && (question.limit === undefined || found.length < question.limit));
    return found;
  };
  const lists = await sideBySide(question.partitions, read);
  const items = lists.flat();
  if (lists.length > 1) items.sort((one, other) => compared(one, other, question.order) * (question.descending ? -1 : 1));
  const seen = new Set<string>();
  const once = items.filter((item) => {
    const key = JSON.stringify(KEY.map((name) => item[name]));
    return !seen.has(key) && seen.add(key);
  });
  return once.slice(0, question.limit);
}

/** The items of these keys, each once, in their order. */
async function askKeys(keys: Record<string, KeyValue>[], get: (key: Record<string, KeyValue>) => Promise<Item | undefined>): Promise<Item[]> {
  const once = [...new Map(keys.map((key) => [JSON.stringify(key), key])).values()];
  const items = await sideBySide(once, get);
  return items.filter((item): item is Item => item !== undefined && isShown(item));
}

/** Of each item the attributes that were asked for. */
function picked<T>(items: Item[], names: readonly string[], type?: string): T[] {
  const wanted = type === undefined ? items : items.filter((item) => item[TYPE] === type);
  return wanted.map((item) => Object.fromEntries(names.filter((name) => item[name] !== undefined).map((name) => [name, item[name]])) as T);
}
