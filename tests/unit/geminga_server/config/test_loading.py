"""Config come from four places in order, and a wrong one is named with where it was written."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Gt, Le, Lt, MultipleOf

from geminga_server.config import INLINE, INTERNAL, Upstream, settings_of
from geminga_server.config.loading import load_config
from geminga_server.errors import ConfigError

Port = Annotated[int, Ge(0), Le(65535)]


@dataclass(frozen=True, slots=True)
class LogConfig:
    entries_max: Annotated[int, Gt(0)] = 50_000
    age_max_s: Annotated[float, Gt(0), Upstream("ledgerAgeMinutes", 60)] = 3600.0


@dataclass(frozen=True, slots=True)
class CacheConfig:
    cache_bytes_max: Annotated[int, Gt(0)] = 1024
    turns_max: Annotated[int, INTERNAL] = 7

    def __post_init__(self) -> None:
        if self.cache_bytes_max == 13:
            raise ValueError("13 bytes bring no luck")


@dataclass(frozen=True, slots=True)
class Config:
    port: Port = 3181
    host: str = "127.0.0.1"
    is_synced: bool = True
    interval_s: Annotated[float, Gt(0), Lt(100)] = 1.5
    directory: Path = Path("data")
    hosts: tuple[str, ...] = ()
    voice: Literal["LOUD", "low"] = "low"
    block_bytes: Annotated[int, MultipleOf(4096)] = 4096
    log: LogConfig = field(default_factory=LogConfig)
    cache: Annotated[CacheConfig, INLINE] = field(default_factory=CacheConfig)

    def __post_init__(self) -> None:
        if self.port == 666:
            raise ValueError("port 666 belongs to another game")


@dataclass(frozen=True, slots=True)
class Required:
    name: str
    size: int


def load(
    toml: str = "",
    tmp_path: Path | None = None,
    environment: dict[str, str] | None = None,
    **flags: object,
) -> Config:
    file = None
    if tmp_path is not None:
        file = tmp_path / "geminga.toml"
        file.write_text(toml, encoding="utf-8")
    return load_config(Config, "bookie", file=file, environment=environment or {}, flags=flags)


def test_without_anything_given_the_defaults_hold() -> None:
    assert load() == Config()


def test_each_place_outdoes_the_one_before(tmp_path: Path) -> None:
    toml = "[bookie]\nport = 1\nhost = 'file'\ninterval_s = 2\nis_synced = false\n"
    environment = {"GEMINGA_BOOKIE_PORT": "2", "GEMINGA_BOOKIE_HOST": "environment"}
    settings = load(toml, tmp_path, environment, port=3, hosts=None)
    assert settings == Config(port=3, host="environment", interval_s=2.0, is_synced=False)
    assert type(settings.interval_s) is float


def test_nested_settings_are_sub_tables_and_double_underscores(tmp_path: Path) -> None:
    toml = "[bookie.log]\nentries_max = 10\nage_max_s = 1.0\n"
    environment = {"GEMINGA_BOOKIE_LOG__AGE_MAX_S": "2.5"}
    assert load(toml, tmp_path, environment).log == LogConfig(10, 2.5)
    assert load(toml, tmp_path).log == LogConfig(10, 1.0)
    assert load_config(
        Config, "bookie", environment={}, flags={"log.entries_max": 7}
    ).log == LogConfig(7)


def test_the_settings_of_an_inline_group_have_no_prefix(tmp_path: Path) -> None:
    in_file = load("[bookie]\ncache_bytes_max = 10\n", tmp_path)
    assert in_file.cache == CacheConfig(10)
    assert load(environment={"GEMINGA_BOOKIE_CACHE_BYTES_MAX": "11"}).cache == CacheConfig(11)
    assert load(cache_bytes_max=12).cache == CacheConfig(12)
    with pytest.raises(ConfigError, match=r"cache\.cache_bytes_max = 1: no such setting"):
        load("[bookie.cache]\ncache_bytes_max = 1\n", tmp_path)
    with pytest.raises(ConfigError, match=r"flag --cache-bytes-max = 0: should be greater than 0"):
        load(cache_bytes_max=0)


def test_an_internal_limit_is_no_setting(tmp_path: Path) -> None:
    assert load().cache.turns_max == 7
    with pytest.raises(ConfigError, match="turns_max = 1: no such setting"):
        load("[bookie]\nturns_max = 1\n", tmp_path)


@pytest.mark.parametrize("given", [13, "13"])
def test_a_group_whose_settings_do_not_go_together_says_so(given: object) -> None:
    with pytest.raises(ConfigError, match=r"wrong: .*13 bytes bring no luck"):
        load(cache_bytes_max=given)


def test_two_settings_of_one_name_are_our_own_mistake() -> None:
    @dataclass(frozen=True)
    class Twice:
        cache: Annotated[CacheConfig, INLINE] = field(default_factory=CacheConfig)
        cache_bytes_max: int = 1

    with pytest.raises(AssertionError, match="two settings cache_bytes_max"):
        settings_of(Twice)


def test_every_setting_can_be_read_back_by_its_name() -> None:
    flags = {"port": 5, "cache_bytes_max": 6, "log.age_max_s": 7.0}
    config = load_config(Config, "bookie", environment={}, flags=flags)
    values = {name: each.value_in(config) for name, each in settings_of(Config).items()}
    assert values["port"] == 5
    assert values["cache_bytes_max"] == 6
    assert values["log.age_max_s"] == 7.0
    assert "turns_max" not in values


def test_a_setting_knows_what_upstream_calls_it_and_keeps_its_limits() -> None:
    settings = settings_of(Config)
    assert settings["log.age_max_s"].upstream == Upstream("ledgerAgeMinutes", 60)
    assert settings["log.entries_max"].upstream is None
    with pytest.raises(ConfigError, match="greater than 0"):
        load_config(Config, "bookie", environment={}, flags={"log.age_max_s": -1.0})


def test_values_of_the_environment_are_converted() -> None:
    environment = {
        "GEMINGA_BOOKIE_IS_SYNCED": "false",
        "GEMINGA_BOOKIE_DIRECTORY": "/var/lib/geminga",
        "GEMINGA_BOOKIE_HOSTS": "a:1, b:2,",
        "GEMINGA_BOOKIE_INTERVAL_S": "2",
    }
    assert load(environment=environment) == Config(
        is_synced=False,
        directory=Path("/var/lib/geminga"),
        hosts=("a:1", "b:2"),
        interval_s=2.0,
    )


def test_sections_of_other_parts_are_left_alone(tmp_path: Path) -> None:
    assert load("[broker]\nport = 6650\n", tmp_path) == Config()


def test_the_process_environment_is_read_where_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GEMINGA_BOOKIE_PORT", "4321")
    assert load_config(Config, "bookie").port == 4321


def test_a_wrong_value_in_the_file_is_named_with_file_and_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        load("[bookie]\nport = 99999\n", tmp_path)
    assert str(wrong.value) == (
        f"a setting of the bookie is wrong: file {tmp_path}/geminga.toml, [bookie] port = 99999: "
        "should be less than or equal to 65535"
    )


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigError, match=r"variable GEMINGA_BOOKIE_PORT = 'x': .*integer"):
        load(environment={"GEMINGA_BOOKIE_PORT": "x"})


def test_a_wrong_flag_is_named() -> None:
    with pytest.raises(ConfigError, match=r"flag --interval-s = -1: should be greater than 0"):
        load(interval_s=-1)


def test_all_wrong_values_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        load(
            "[bookie.log]\nentries_max = 0\n",
            tmp_path,
            {"GEMINGA_BOOKIE_HOSTS": "a", "GEMINGA_BOOKIE_IS_SYNCED": "perhaps"},
            block_bytes=5,
        )
    lines = str(wrong.value).splitlines()
    assert lines[0] == "3 settings of the bookie are wrong:"
    assert "[bookie] log.entries_max = 0: should be greater than 0" in str(wrong.value)
    assert "variable GEMINGA_BOOKIE_IS_SYNCED = 'perhaps'" in str(wrong.value)
    assert "flag --block-bytes = 5: should be a multiple of 4096" in str(wrong.value)


def test_a_wrong_value_that_a_better_place_outdoes_is_no_error(tmp_path: Path) -> None:
    assert load("[bookie]\nport = 99999\n", tmp_path, port=1).port == 1


@pytest.mark.parametrize("given", [666, "666"])
def test_settings_that_do_not_go_together_say_so(given: object) -> None:
    with pytest.raises(ConfigError, match=r"wrong: .*port 666 belongs to another game"):
        load(port=given)


def test_an_unknown_setting_in_the_file_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[bookie\] prot = 1: no such setting; port\?"):
        load("[bookie]\nprot = 1\n", tmp_path)
    with pytest.raises(ConfigError, match=r"log\.entries = 1: no such setting"):
        load("[bookie.log]\nentries = 1\n", tmp_path)
    with pytest.raises(ConfigError, match=r"zzzzz = 1: no such setting$"):
        load("[bookie]\nzzzzz = 1\n", tmp_path)


def test_a_table_where_a_value_belongs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"port = {'x': 1}: should be a valid integer"):
        load("[bookie.port]\nx = 1\n", tmp_path)
    with pytest.raises(ConfigError, match="log = 1: no such setting"):
        load("[bookie]\nlog = 1\n", tmp_path)


def test_an_unknown_variable_is_refused_by_its_name_with_what_was_meant() -> None:
    with pytest.raises(ConfigError) as wrong:
        load(environment={"GEMINGA_BOOKIE_PRT": "1", "GEMINGA_BOOKIE_FOO": "1"})
    assert str(wrong.value) == (
        "2 settings of the bookie are wrong:\n"
        "  variable GEMINGA_BOOKIE_PRT: no such setting; GEMINGA_BOOKIE_PORT?\n"
        "  variable GEMINGA_BOOKIE_FOO: no such setting"
    )


def test_variables_of_other_parts_are_ignored() -> None:
    environment = {"GEMINGA_BROKER_FOO": "1", "GEMINGA_BOOKIES": "1", "GEMINGA_PART_NAME": "b"}
    assert load(environment=environment) == Config()


def test_what_kubernetes_says_of_a_service_of_the_parts_name_is_no_setting() -> None:
    host = "10.96.7.7"
    environment = {
        "GEMINGA_BOOKIE_SERVICE_HOST": host,
        "GEMINGA_BOOKIE_SERVICE_PORT": "3181",
        "GEMINGA_BOOKIE_SERVICE_PORT_HTTP": "8000",
        "GEMINGA_BOOKIE_PORT": f"tcp://{host}:3181",
        "GEMINGA_BOOKIE_PORT_3181_TCP": f"tcp://{host}:3181",
        "GEMINGA_BOOKIE_PORT_3181_TCP_PROTO": "tcp",
        "GEMINGA_BOOKIE_PORT_3181_TCP_PORT": "3181",
        "GEMINGA_BOOKIE_PORT_3181_TCP_ADDR": host,
    }
    assert load(environment=environment) == Config()


@pytest.mark.parametrize("words", ["loud", "LOUD", "Loud"])
def test_one_of_a_choice_may_be_written_in_any_case(words: str, tmp_path: Path) -> None:
    assert load(environment={"GEMINGA_BOOKIE_VOICE": words}).voice == "LOUD"
    assert load(f"[bookie]\nvoice = '{words}'\n", tmp_path).voice == "LOUD"
    assert load(voice=words).voice == "LOUD"


def test_none_of_a_choice_is_refused_with_the_choice() -> None:
    with pytest.raises(ConfigError, match=r"GEMINGA_BOOKIE_VOICE = 'deaf': .*'LOUD' or 'low'"):
        load(environment={"GEMINGA_BOOKIE_VOICE": "deaf"})


def test_a_setting_outside_of_a_section_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"port stands outside; put it below \[bookie\]"):
        load("port = 1\n", tmp_path)


def test_a_file_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not TOML: Expected '\]'"):
        load("[bookie", tmp_path)
    (tmp_path / "latin").write_bytes(b"[bookie]\nhost = '\xe9'\n")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(Config, "bookie", file=tmp_path / "latin")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(Config, "bookie", file=tmp_path / "missing")


@pytest.mark.parametrize("size", [5, "5"])
def test_a_setting_without_a_default_must_be_given(size: object) -> None:
    with pytest.raises(ConfigError) as missing:
        load_config(Required, "bookie", environment={}, flags={"size": size})
    assert str(missing.value) == (
        "a setting of the bookie is wrong: name is not given: use the flag --name, the variable "
        "GEMINGA_BOOKIE_NAME, or name below [bookie] in the file"
    )
    given = load_config(Required, "bookie", environment={}, flags={"size": size, "name": "n"})
    assert given == Required("n", 5)


def test_a_flag_for_no_setting_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="colour"):
        load(colour="red")


def test_checked_flags_need_no_pydantic() -> None:
    source = """
import sys
from dataclasses import dataclass
from typing import Annotated
from annotated_types import Ge
from geminga_server.config.loading import load_config

@dataclass(frozen=True)
class Config:
    port: Annotated[int, Ge(0)] = 1

assert load_config(Config, "bookie", flags={"port": 5}).port == 5
assert "pydantic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", source], check=True)
