/**
 * A folder of Parquet files, a folder per table, hour and host: `packets/hour=2026-01-01T00/host=a/trace.pcap.parquet`. The files of a
 * capture are written in a hidden folder and moved into their places when all are whole.
 */
import {
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmdirSync,
  rmSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { makeFolder } from '@node-roce/device/make-folder';
import type { TableClock } from './clock.ts';
import type { Column, Table } from './columns.ts';
import { TableFile } from './table-file.ts';

/** Null in a path, as readers understand it: the hour of a capture without times. */
const NO_HOUR = '__HIVE_DEFAULT_PARTITION__';
/** Unfinished files stand in such a folder: Spark, Trino and Hive look into none whose name begins with a dot. */
const UNFINISHED = '.roce-export-';
/** Files of a table that take rows at the same time: packets come in order, messages end in one hour and began in another. */
const MAX_OPEN = 3;
/** Files of a table: more hours than a capture has, unless its times are not to be believed. */
const MAX_FILES = 2000;

const hourText = (hour: number | undefined): string =>
  hour === undefined ? NO_HOUR : new Date(hour * 3_600_000).toISOString().slice(0, 13);

/** A folder of tables cannot take the files of this capture. */
export class DatasetError extends Error {
  readonly code = 'ERR_DATASET';
}

/** One table of a capture, which becomes some files. */
export class TableWriter<Row> {
  readonly #table: Table<Row>;
  readonly #columns: readonly Column<Row>[];
  readonly #clock: TableClock;
  readonly #create: (hour: string, part: number) => string;
  /** By hour; the one that took a row last is last. */
  readonly #open = new Map<number | undefined, TableFile<Row>>();
  readonly #parts = new Map<number | undefined, number>();
  #files = 0;
  #last: TableFile<Row> | undefined;
  #lastHour: number | undefined;
  rows = 0;

  constructor(table: Table<Row>, clock: TableClock, create: (hour: string, part: number) => string) {
    this.#table = table;
    this.#columns = table.columns;
    this.#clock = clock;
    this.#create = create;
  }

  add(row: Row): void {
    this.rows++;
    const hour = this.#clock.hour(this.#table.time(row));
    if (this.#last === undefined || hour !== this.#lastHour) this.#turnTo(hour);
    this.#last!.add(row);
  }

  /** Ends all files. A table without rows has a file too: readers of the folder find its columns. */
  finish(): void {
    if (this.#files === 0) this.#turnTo(this.#clock.hour(0));
    for (const [hour, file] of this.#open) {
      file.finish();
      this.#open.delete(hour);
    }
  }

  /** Closes the files unfinished. */
  abandon(): void {
    for (const file of this.#open.values()) file.abandon();
    this.#open.clear();
  }

  #turnTo(hour: number | undefined): void {
    const file = this.#open.get(hour) ?? this.#begin(hour);
    this.#open.delete(hour);
    this.#open.set(hour, file);
    this.#last = file;
    this.#lastHour = hour;
  }

  #begin(hour: number | undefined): TableFile<Row> {
    if (this.#open.size === MAX_OPEN) {
      const [oldest, file] = this.#open.entries().next().value!;
      file.finish();
      this.#open.delete(oldest);
    }
    if (++this.#files > MAX_FILES)
      throw new DatasetError(
        `the capture's times lie in more than ${MAX_FILES} hours, out of order: they are not written as ${MAX_FILES} files a table`,
      );
    const part = this.#parts.get(hour) ?? 0;
    this.#parts.set(hour, part + 1);
    return new TableFile(this.#create(hourText(hour), part), this.#columns);
  }
}

/** The place of a capture's files in a folder of tables. */
export class Dataset {
  readonly #folder: string;
  readonly #host: string;
  readonly #name: string;
  readonly #tables: readonly string[];
  readonly #isNew: boolean;
  readonly #unfinished: string;
  /** Paths of the files, from the folder on. */
  readonly #files: string[] = [];
  readonly #writers: { abandon(): void }[] = [];

  /**
   * Makes the folder, unless it is there.
   *
   * @param tables names of all tables
   * @throws DatasetError if it holds other things, or files of a capture of this name and host; the system's error
   */
  constructor(folder: string, host: string, capture: string, tables: readonly string[]) {
    this.#folder = folder;
    this.#host = host;
    this.#tables = tables;
    // Spark and Trino pass by names that begin with a dot or underscore.
    this.#name = capture.replaceAll(/[^\w.-]/g, '_').replace(/^[._]/, 'capture$&');
    this.#isNew = !existsSync(folder);
    if (!this.#isNew) this.#check();
    makeFolder(folder);
    this.#unfinished = mkdtempSync(join(folder, UNFINISHED));
  }

  /** Refuses a folder of something else, and one that has this capture. */
  #check(): void {
    const names = readdirSync(this.#folder);
    const others = names.filter((name) => !this.#tables.includes(name) && !name.startsWith(UNFINISHED));
    if (others.length > 0)
      throw new DatasetError(
        `${this.#folder} has other files (${others.slice(0, 3).join(', ')}${others.length > 3 ? ', …' : ''}): name a new folder, or one that roce export --parquet wrote. Nothing was written`,
      );
    for (const table of names.filter((name) => this.#tables.includes(name))) {
      const found = readdirSync(join(this.#folder, table), { recursive: true, encoding: 'utf8' }).find(
        (path) => this.#isOwn(path),
      );
      if (found !== undefined) throw this.#exists(join(table, found));
    }
  }

  /** Whether a path below a table is a file of this capture, from an earlier export. */
  #isOwn(path: string): boolean {
    const [, host, name, ...more] = path.split('/');
    if (more.length > 0 || host !== `host=${this.#host}` || !name?.startsWith(this.#name)) return false;
    return /^(\.part\d+)?\.parquet$/.test(name.slice(this.#name.length));
  }

  #exists(path: string): DatasetError {
    return new DatasetError(
      `${join(this.#folder, path)} exists: a capture of this name and host was exported before. Remove its files, or give another --host`,
    );
  }

  /** A writer of one of the tables. */
  writer<Row>(table: Table<Row>, clock: TableClock): TableWriter<Row> {
    const writer = new TableWriter(table, clock, (hour, part) => {
      const name = `${this.#name}${part === 0 ? '' : `.part${part}`}.parquet`;
      const path = join(table.name, `hour=${hour}`, `host=${this.#host}`, name);
      this.#files.push(path);
      const place = join(this.#unfinished, path);
      mkdirSync(dirname(place), { recursive: true });
      return place;
    });
    this.#writers.push(writer);
    return writer;
  }

  /** Moves the files to their places; all or, after an error, none. Returns how many there are. */
  publish(): number {
    const placed: string[] = [];
    try {
      for (const path of this.#files) {
        const target = join(this.#folder, path);
        mkdirSync(dirname(target), { recursive: true });
        this.#place(join(this.#unfinished, path), target, path);
        placed.push(target);
      }
    } catch (error) {
      for (const target of placed) rmSync(target, { force: true });
      throw error;
    }
    rmSync(this.#unfinished, { recursive: true, force: true });
    return this.#files.length;
  }

  /** Moves a file, and never over another: a link fails where there is one. */
  #place(from: string, target: string, path: string): void {
    try {
      linkSync(from, target);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EEXIST') throw this.#exists(path);
      if (existsSync(target)) throw error;
      // A file system without links.
      renameSync(from, target);
    }
  }

  /** Removes what was written, and the folders that were made for it. */
  discard(): void {
    for (const writer of this.#writers) writer.abandon();
    rmSync(this.#unfinished, { recursive: true, force: true });
    for (const path of this.#files) {
      for (let folder = dirname(path); folder !== '.'; folder = dirname(folder))
        removeEmpty(join(this.#folder, folder));
    }
    if (this.#isNew) removeEmpty(this.#folder);
  }
}

function removeEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // It has other files, or was not made.
  }
}
