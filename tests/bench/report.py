"""Tables of results: for the terminal, and between the marks of docs/performance.md."""
import os

BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"


def number(value, unit):
    if value is None:
        return "-"
    if unit == "/s":
        return f"{value:,.0f}"
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    if unit == "%":
        return f"{value:.2f}"
    return f"{value:.3f}" if abs(value) < 10 and unit in ("ms", "s") else f"{value:.1f}"


def limit(value, unit):
    return "-" if value is None else number(value, unit) if unit == "/s" else f"{value:g}"


def several(numbers, unit):
    return " / ".join(number(value, unit) for value in numbers) or "-"


def runs_text(row):
    """All runs; of many rounds the smallest, the median and the largest."""
    if len(row.runs) <= 5:
        return several(row.runs, row.unit)
    ordered = sorted(row.runs)
    return f"{number(ordered[0], row.unit)} ... {number(ordered[len(ordered) // 2], row.unit)} ... {number(ordered[-1], row.unit)}"


def mqload_text(row):
    """The judge's value and how far it is from ours."""
    if not row.mqload:
        return "-"
    apart = row.disagreement()
    return number(row.pick(row.mqload), row.unit) + ("" if apart is None else f" ({apart * 100:.0f} % apart)")


def columns(rows, java, quick):
    header = ["cell", "must", "aim", "measured", "spread", "verdict", "all runs", "mqload"]
    if java:
        header.append("RocketMQ 4.9.7")
    table = [header]
    for row in rows:
        line = [f"{row.what} [{row.unit}]", limit(row.must, row.unit), limit(row.aim, row.unit), number(row.value, row.unit), f"{row.spread() * 100:.0f} %",
                "ran" if quick else row.verdict(), runs_text(row), mqload_text(row)]
        if java:
            line.append("-" if not row.java else number(row.pick(row.java), row.unit))
        table.append(line)
    return table


def text_table(rows, java, quick):
    table = columns(rows, java, quick)
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) if i in (0, 6) else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))).rstrip()
             for line in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def machine_text(facts):
    disk = f"{facts['disk_ms']:.3f} ms" if facts.get("disk_ms") else "not measured"
    return (f"{facts['date']}, version {facts['version']}: {facts['cores']} cores ({facts['cpu']}), {facts['memory_gib']} GiB, Linux {facts['kernel']}, "
            f"{facts['file_system']}, fdatasync of 64 KiB with three writers {disk}. Before the run {facts['busy_before'] * 100:.0f} % of the cores were "
            f"in use by others, {facts['stolen_before'] * 100:.0f} % were taken away by the host. Runs of {facts['duration']:g} s after {facts['warmup']:g} s"
            f"{', raised priority' if facts.get('nice') else ''}.")


def markdown(facts, rows, problems):
    java = any(row.java for row in rows)
    table = columns(rows, java, False)
    lines = [machine_text(facts), ""]
    for i, line in enumerate(table):
        lines.append("| " + " | ".join(line) + " |")
        if i == 0:
            lines.append("|---|" + "---:|" * (len(line) - 1))
    lines.append("")
    lines += [f"- {row.what}: {row.note}" for row in rows if row.note]
    lines += [f"- **Not in order:** {problem}" for problem in problems]
    return "\n".join(lines).rstrip() + "\n"


def write_doc(path, table, text):
    marks = BEGIN.format(table), END.format(table)
    with open(path, encoding="utf-8") as file:
        document = file.read()
    begin, end = (document.find(mark) for mark in marks)
    if begin < 0 or end < begin:
        raise ValueError(f"{path} has no {marks[0]} ... {marks[1]}")
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(document[:begin + len(marks[0])] + "\n" + text + document[end:])
    os.replace(temporary, path)
