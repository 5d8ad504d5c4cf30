"""The faster answers are moto's own, to the byte."""

from __future__ import annotations

import collections
import types
from urllib.parse import parse_qsl

import boto3
import moto.core.serialize
import pytest
import xmltodict
from botocore.loaders import JSONFileLoader
from moto.core.model import Shape
from moto.core.serialize import AttributePickerContext, QuerySerializer, XFormedAttributePicker
from moto.core.utils import get_service_model
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.tags import TagBackend

from world.aws import model_files, moto_speed

DOCUMENT = {
    "DescribeAnswer": {
        "@xmlns": "https://autoscaling.amazonaws.com/doc/2011-01-01/",
        "Groups": {"member": [{"Name": "a & b", "Size": 3, "On": True, "Off": False}, {"Name": "<c>", "Nothing": None}]},
        "Empty": "",
        "EmptyList": [],
        "EmptyMap": {},
        "Texts": ["one", "two", None],
        "WithAttribute": {"@kind": 'a "quoted" one', "#text": "x > y"},
        "Number": 1.5,
    }
}


@pytest.mark.parametrize("full_document", [False, True])
@pytest.mark.parametrize("pretty", [None, False, True])
def test_a_document_is_written_as_xmltodict_writes_it(full_document, pretty):
    how = {"full_document": full_document, "short_empty_elements": True, "pretty": pretty}
    assert moto_speed.unparse(DOCUMENT, **how) == xmltodict.unparse(DOCUMENT, **how)


def test_an_attribute_is_searched_by_the_same_names_each_time():
    class Shape:
        name, type_name, serialization = "Size", "integer", {"name": "size"}

    class Group:
        pass

    moto_speed.install()
    picker, original = XFormedAttributePicker(), moto_speed._ORIGINAL_KEYS[XFormedAttributePicker]
    for key in ("Size", "GroupName", "Size"):
        context = AttributePickerContext(obj=Group(), key=key, shape=Shape, operation_model=None)
        assert picker.get_possible_keys(context) == tuple(original(picker, context))
    assert moto.core.serialize.XFormedAttributePicker.get_possible_keys is not original


@pytest.mark.parametrize(
    "value",
    [
        {"Size": 3, "group_name": "workers"},
        {"size": None, "GroupName": "workers"},
        types.SimpleNamespace(size=3, GroupName=None),
        collections.OrderedDict(Size=3),
        ["Size"],
        None,
    ],
    ids=repr,
)
def test_a_value_is_the_one_that_moto_finds(value):
    moto_speed.install()
    operation = get_service_model("autoscaling").operation_model("DescribeAutoScalingGroups")
    for picker in (XFormedAttributePicker(), XFormedAttributePicker(response_transformers={"Size": str}), None):
        serializer = QuerySerializer(operation, value_picker=picker)
        for key in ("Size", "GroupName", "parent.child"):
            shape = Shape("Size", {"type": "string"})
            for _ in range(2):
                found = serializer.get_value(value, key, shape)
                assert found == moto_speed._moto_get_value(serializer, value, key, shape)


def test_the_tags_of_a_resource_are_those_that_moto_finds():
    moto_speed.install()
    backend = TagBackend()
    backend.create_tags(["i-1", "vol-1"], {"Name": "one", "empty": ""})
    backend.create_tags(["i-11"], {"Name": "eleven"})
    backend.create_tags(["i-2"], {"Name": "two"})
    backend.delete_tag_keys(["i-2"], ["Name"])
    for name in ("i-1", "i-11", "i-2", "vol-1", "i-3", None):
        resource = TaggedEC2Resource()
        resource.id, resource.ec2_backend = name, backend
        found = resource.get_tags()
        assert found == moto_speed._moto_get_tags(resource) and len(found) == {"i-1": 2, "vol-1": 2, "i-11": 1}.get(name, 0)
    assert "i-3" not in backend.tags


def test_a_model_is_read_once_and_stays_as_botocore_reads_it():
    def loaded() -> dict:
        return boto3.Session()._session.get_component("data_loader").load_data("autoscaling/2011-01-01/service-2")

    model = loaded()
    assert loaded() is model
    boto3.client("autoscaling", region_name="eu-central-1", aws_access_key_id="AKIA", aws_secret_access_key="secret")
    [path] = [path for path, kept in model_files._files.items() if kept is model]
    assert model_files._read(JSONFileLoader(), path) == model


@pytest.mark.parametrize(
    ("body", "is_form"),
    [("Action=Describe&Name=", True), ('{"a": "b=c&d=e"}', True), ("{" + "x" * 1_000_000, False), ("a=" + "x" * 1_000_000, True)],
    ids=["form", "small JSON", "large JSON", "large form"],
)
def test_a_form_is_searched_in_all_but_large_json(body, is_form):
    assert moto_speed._parse_qsl(body, keep_blank_values=True) == (parse_qsl(body, keep_blank_values=True) if is_form else [])
